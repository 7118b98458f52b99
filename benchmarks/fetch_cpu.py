"""CPU of a broker for a small Fetch of a long log, and in a wide session.

    python -m benchmarks.fetch_cpu [--tree PATH] [--fetches 2000] [--scale 1.0]

It prints two lines, in microseconds of the broker's CPU. The first is a read_committed fetch of one
batch from a log of 2,000 segments. The second is a round of one produce and one fetch in a session
of 2,000 partitions. `--tree` starts the broker of another checkout.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import brokers
from benchmarks.stall_probe import Client, frame, produce_frame
from benchmarks.stall_scenarios import PARTITIONS_A_TOPIC, batch, build, created, produced, topics
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey

READ_COMMITTED: Final = 1
VERSION: Final = 11
WARM: Final = 100
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_us(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / _TICKS_A_SECOND


def fetch(topics_asked: list[Any], **fields: Any) -> Any:
    return build(ApiKey.FETCH, max_bytes=1 << 20, topics=topics_asked, **fields)


def asked(topic: str, offsets: dict[int, int]) -> Any:
    cls = codec.request(ApiKey.FETCH).cls.Topics
    parts = [
        cls.Partitions(partition=number, fetch_offset=offset, partition_max_bytes=1_000)
        for number, offset in offsets.items()
    ]
    return cls(topic=topic, partitions=parts)


def read_committed(client: Client, pid: int, fetches: int, scale: float) -> float:
    """CPU of one fetch of a log of many segments."""
    segments = int(2_000 * scale)
    created(client, ["long"], 1, internal_segment_bytes="200")
    produced(client, [produce_frame({("long", 0): batch(b"x" * 100)})] * segments, 10)
    requests = [
        frame(
            ApiKey.FETCH,
            VERSION,
            fetch(
                [asked("long", {0: number * 7919 % segments})],
                isolation_level=READ_COMMITTED,
                min_bytes=1,
            ),
        )
        for number in range(fetches)
    ]
    for request in requests[:WARM]:
        client.exchange(request)
    before = cpu_us(pid)
    for request in requests:
        client.exchange(request)
    return (cpu_us(pid) - before) / fetches


def session(client: Client, other: Client, pid: int, rounds: int, scale: float) -> float:
    """CPU of one produce to one partition of a wide session, and the fetch that brings it."""
    names = topics("wide", int(2_000 * scale))
    created(client, names, PARTITIONS_A_TOPIC)
    first = fetch([asked(name, dict.fromkeys(range(PARTITIONS_A_TOPIC), 0)) for name in names])
    first.session_epoch = 0
    opened = client.ask(ApiKey.FETCH, VERSION, first)
    assert opened.session_id, opened
    record = batch(b"x" * 100)
    places = [(name, number) for name in names for number in range(PARTITIONS_A_TOPIC)]
    ends = dict.fromkeys(places, 0)
    moved: list[Any] = []
    before = 0.0
    for number in range(rounds + WARM):
        if number == WARM:
            before = cpu_us(pid)
        place = topic, partition = places[number * 7919 % len(places)]
        produced(other, [produce_frame({place: record})])
        body = fetch(moved, min_bytes=1, max_wait_ms=5_000)
        body.session_id, body.session_epoch = opened.session_id, number + 1
        answer = client.ask(ApiKey.FETCH, VERSION, body)
        brought = [
            (one.topic, part.partition_index) for one in answer.responses for part in one.partitions
        ]
        assert brought == [place], (number, place, brought)
        ends[place] += 1
        moved = [asked(topic, {partition: ends[place]})]
    return (cpu_us(pid) - before) / rounds


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tree", type=Path, default=brokers.ROOT, help="whose broker")
    parser.add_argument("--fetches", type=int, default=2_000)
    parser.add_argument("--scale", type=float, default=1.0, help="of segments and partitions")
    options = parser.parse_args()
    os.chdir(options.tree)  # a child of `python -m` imports from where it starts
    os.environ["PYTHONPATH"] = str(options.tree)
    with (
        tempfile.TemporaryDirectory(prefix="fetch-cpu-") as data,
        brokers.tidemark(Path(data) / "broker", tiered=False) as broker,
        Client(broker.bootstrap) as client,
        Client(broker.bootstrap) as other,
    ):
        wide = session(client, other, broker.pid, options.fetches, options.scale)
        long = read_committed(client, broker.pid, options.fetches, options.scale)
    sys.stdout.write(f"read_committed fetch: {long:.0f} us\nsession round: {wide:.0f} us\n")


if __name__ == "__main__":
    main()
