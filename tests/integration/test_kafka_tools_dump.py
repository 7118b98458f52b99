"""Files that we write, read by Kafka's own dump tool without complaint."""

import pytest

from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, until
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

pytestmark = [pytest.mark.lasts(seconds=20), pytest.mark.jvm]
COMPLAINTS = (
    "mismatches",
    "not ending",
    "corrupt",
    "Found timestamp",
    "isvalid: false",
    "Exception",
)


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    require_kafka_tools()


def dump(*arguments: str) -> str:
    shown = kafka_tool("dump-log", *arguments)
    for complaint in COMPLAINTS:
        assert complaint not in shown, shown[:3_000]
    return shown


def test_everything_a_tiered_broker_writes_is_read_by_the_dump_tool(
    tiered_broker: BrokerProcess,
) -> None:
    broker = tiered_broker
    done = kafka_tool("topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic",
                      "dumped", "--config", "remote.storage.enable=true")  # fmt: skip
    assert "Created" in done
    produce(broker, "dumped", [(b"%d" % n, b"x" * 1_000) for n in range(4_000)])
    until(lambda: len(broker.remote_segments("dumped")) >= 2, "segments are in the store")
    assert broker.terminate() == 0

    directory = broker.partition_directory("dumped")
    for segment in broker.local_segments("dumped"):
        base = directory / f"{segment:020d}"
        dump("--files", f"{base}.log,{base}.index,{base}.timeindex", "--deep-iteration")
    for snapshot in directory.glob("*.snapshot"):
        dump("--files", str(snapshot))

    metadata = broker.log_directory / "__cluster_metadata-0"
    for file in [*metadata.glob("*.log"), *metadata.glob("*.checkpoint")]:
        dump("--files", str(file), "--cluster-metadata-decoder")
    assert '"type":"TOPIC_RECORD"' in dump(
        "--files", ",".join(str(p) for p in metadata.glob("*.log")), "--cluster-metadata-decoder"
    )

    states = ""
    for file in broker.log_directory.glob("__remote_log_metadata-*/*.log"):
        states += dump("--files", str(file), "--remote-log-metadata-decoder")
    assert "COPY_SEGMENT_STARTED" in states
    assert "COPY_SEGMENT_FINISHED" in states
