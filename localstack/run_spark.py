"""A first query with Spark, from nothing: what `make run-spark` starts.

Starts LocalStack's S3 and a broker (`run_broker.py`), fills a tiered topic, waits until most of it
lies in S3, and reads it with Spark. Then both stay up, with what to try next on the screen, until
Ctrl-C; with `--once` all ends after the query.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
TOPIC = "tides"
PARTITIONS = 2
POLL_S = 0.3
DEADLINE_S = 120.0
TOLD_S = 60.0

FIRST_QUERY = """\
tides = (
    spark.read.format("tidemark")
    .option("kafka.bootstrap.servers", "{bootstrap}")
    .option("subscribe", "tides")
    .load()
)
first = tides.where("offset < 3")
first.selectExpr("partition", "offset", "cast(key as string) key", "timestamp").show()
tides.groupBy("partition").agg({{"offset": "max", "value": "count"}}).orderBy("partition").show()
"""


def main() -> None:
    """Start, fill, wait, ask; exit code 0 when the query ran."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=9092, help="the broker's, for clients")
    parser.add_argument("--s3-port", type=int, default=4566, help="LocalStack's; 0: a free one")
    parser.add_argument("--records", type=int, default=200_000, help="to fill the topic with")
    parser.add_argument("--once", action="store_true", help="end after the first query")
    parser.add_argument(
        "--override", action="append", default=[], metavar="K=V", help="one broker setting"
    )
    asked = parser.parse_args()
    told = threading.Event()
    hear(told)
    arguments = [f"--port={asked.port}", f"--s3-port={asked.s3_port}"]
    arguments += [f"--override={one}" for one in asked.override]
    stand = subprocess.Popen(
        [sys.executable, str(HERE / "run_broker.py"), *arguments],
        stdout=sys.stderr,  # of this program only the query's answer goes to stdout
        start_new_session=True,
    )
    try:
        sys.exit(run(asked, Stand(stand, told)))
    except KeyboardInterrupt:  # while Spark starts or answers
        sys.exit(130)
    finally:
        stand.terminate()
        stand.wait(TOLD_S)


def hear(told: threading.Event) -> None:
    """Have Ctrl-C and the like set `told`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: told.set())


class Stand:
    """LocalStack and the broker: one process, which may end, and says why; a person may stop it."""

    def __init__(self, process: "subprocess.Popen[bytes]", told: threading.Event) -> None:
        self._process, self.told = process, told

    @property
    def is_over(self) -> bool:
        """True if there is nothing to wait for any more."""
        return self.told.is_set() or self._process.poll() is not None

    def wait_for(self, what: str, is_there: Callable[[], bool]) -> bool:
        """Ask again and again; False when the stand is over, or the time is up."""
        say(f"waiting for {what}")
        for _ in range(int(DEADLINE_S / POLL_S)):
            if self.is_over:
                return False
            if is_there():
                return True
            self.told.wait(POLL_S)
        say(f"{what}: still not there after {DEADLINE_S:.0f} s")
        return False


def run(asked: argparse.Namespace, stand: Stand) -> int:
    """Everything that needs the stand; returns the exit code."""
    bootstrap = f"127.0.0.1:{asked.port}"
    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(settings)
    if not stand.wait_for("the broker", lambda: answers(admin)):
        return 1
    fill(admin, settings, asked.records)
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    if not stand.wait_for("the topic's segments in S3", lambda: is_copied(bootstrap)):
        return 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # ends Spark at once, also as it starts
    ask(bootstrap)
    hear(stand.told)
    if not asked.once:
        say("the broker and S3 stay up until Ctrl-C; docs/spark.md continues from here,")
        say("in a second shell: export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test")
        while not stand.is_over:
            stand.told.wait(POLL_S)
    return 0


def answers(admin: AdminClient) -> bool:
    """True if the broker takes requests."""
    try:
        admin.list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def fill(admin: AdminClient, settings: dict[str, object], records: int) -> None:
    """Make the topic and put records into it."""
    config = {
        "remote.storage.enable": "true",
        "segment.bytes": str(1 << 20),
        "local.retention.bytes": "1",
    }
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)])[TOPIC].result()
    producer = Producer({**settings, "linger.ms": 50})
    for number in range(records):
        value = f'{{"gauge": {number % 50}, "centimetres": {number * 7919 % 1000}}}'
        producer.produce(TOPIC, key=str(number % 50), value=value)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(DEADLINE_S)
    say(f"{records - left} records in topic {TOPIC}")


def is_copied(bootstrap: str) -> bool:
    """True if each partition has closed segments, all of them in the remote tier."""
    from pipeline.opening import open_log
    from pipeline.values import ClusterAddress, Where

    log = open_log(Where(cluster=ClusterAddress(bootstrap)))
    try:
        partitions = log.partitions([TOPIC])
        starts, ends = log.earliest(partitions), log.remote_ends(partitions)
    finally:
        log.close()
    return all(ends[one] > starts[one] for one in partitions)


def ask(bootstrap: str) -> None:
    """Run the first query, and show it before."""
    from pipeline.jobs.session import spark_session

    say("starting Spark")
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    with spark_session("tidemark", "local[2]", settings) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        query = FIRST_QUERY.format(bootstrap=bootstrap)
        print(query, flush=True)
        exec(query, {"spark": spark})


def say(message: str) -> None:
    """Print a line for the person at the terminal."""
    print(f"run-spark: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
