"""CPU a request of two checkouts, both brokers up at once, their work in alternating rounds.

    python -m benchmarks.pairs --base PATH [--rounds 20] [--only fetch_small,metadata]

The other checkout runs with this environment. CPU is that of the broker and its children, by the
kernel's run time in nanoseconds. Each kind of work has a row: microseconds a request of both
(medians), and the ratio new/base of a round: lower quartile, median, upper quartile. Other work on
the machine disturbs both alike.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import brokers
from benchmarks.stall_probe import Client, frame, produce_frame
from benchmarks.stall_scenarios import batch, build, created, produced, wait_for
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey

FETCH_VERSION: Final = 11
IN_FLIGHT: Final = 16
EARLIEST_LOCAL: Final = -4
LARGE: Final = 1 << 20
LOCAL_TOPIC, REMOTE_TOPIC = "local", "remote"
Work = tuple[list[bytes], int]
"""Frames of a round, and how many of them are under way at once."""


def cpu_us(pid: int) -> float:
    """Run time of a process and its children so far."""
    process = psutil.Process(pid)
    tasks = [
        task
        for one in [process, *process.children(recursive=True)]
        for task in Path(f"/proc/{one.pid}/task").iterdir()
    ]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


def fetch(topic: str, offset: int, max_bytes: int) -> bytes:
    """One partition from an offset."""
    cls = codec.request(ApiKey.FETCH).cls.Topics
    part = cls.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    body = build(
        ApiKey.FETCH,
        max_bytes=max_bytes,
        min_bytes=1,
        max_wait_ms=5_000,
        topics=[cls(topic=topic, partitions=[part])],
    )
    return frame(ApiKey.FETCH, FETCH_VERSION, body)


def metadata() -> bytes:
    cls = codec.request(ApiKey.METADATA).cls
    return frame(ApiKey.METADATA, 9, cls(topics=[cls.Topics(name=LOCAL_TOPIC)]))


def works(remote_end: int) -> dict[str, Work]:
    """Return the requests of a round; below `remote_end` the remote topic has no local segment."""
    small = produce_frame({(LOCAL_TOPIC, 0): batch(b"x" * 100)})
    large = produce_frame({(LOCAL_TOPIC, 0): batch(os.urandom(LARGE - 1_000))})
    remote = [fetch(REMOTE_TOPIC, offset, LARGE) for offset in range(remote_end)]
    return {
        "produce_small": ([small] * 1_600, IN_FLIGHT),
        "produce_1_in_flight": ([small] * 500, 1),
        "produce_1_mb": ([large] * 20, 1),
        "fetch_small": ([fetch(LOCAL_TOPIC, 0, 1_000)] * 1_600, IN_FLIGHT),
        "fetch_1_mb": ([fetch(LOCAL_TOPIC, 1, LARGE)] * 40, 1),
        "metadata": ([metadata()] * 400, 1),
        "remote_1_mb": (remote[:20], 1),
    }


def filled(client: Client) -> int:
    """Topics to read from; returns the first local offset of the remote one."""
    created(client, [LOCAL_TOPIC], 1)
    large = produce_frame({(LOCAL_TOPIC, 0): batch(os.urandom(LARGE - 1_000))})
    produced(client, [produce_frame({(LOCAL_TOPIC, 0): batch(b"x" * 100)}), large], 1)
    created(
        client,
        [REMOTE_TOPIC],
        1,
        remote_storage_enable="true",
        local_retention_bytes="1",
        segment_bytes=str(4 * LARGE),
    )
    for _ in range(40):
        value = batch(os.urandom(LARGE - 1_000))
        produced(client, [produce_frame({(REMOTE_TOPIC, 0): value})], 1)
    wait_for(lambda: local_start(client) > 20, "its segments are remote")
    return local_start(client)


def local_start(client: Client) -> int:
    """First offset of the remote topic that is on the local disk."""
    cls = codec.request(ApiKey.LIST_OFFSETS).cls
    asked = cls.Topics.Partitions(partition_index=0, timestamp=EARLIEST_LOCAL)
    body = cls(replica_id=-1, topics=[cls.Topics(name=REMOTE_TOPIC, partitions=[asked])])
    return int(client.ask(ApiKey.LIST_OFFSETS, 8, body).topics[0].partitions[0].offset)


def round_of(client: Client, pid: int, work: Work) -> float:
    """Microseconds a request."""
    frames, in_flight = work
    before = cpu_us(pid)
    for first in range(0, len(frames), in_flight):
        client.exchange_many(frames[first : first + in_flight])
    return (cpu_us(pid) - before) / len(frames)


@contextmanager
def running(tree: Path, data: Path) -> Iterator[brokers.Running]:
    """The broker of a checkout."""
    here, path = Path.cwd(), os.environ.get("PYTHONPATH")
    os.chdir(tree)  # a child of `python -m` imports from where it starts
    os.environ["PYTHONPATH"] = str(tree)
    try:
        with brokers.tidemark(data, tiered=True) as broker:
            yield broker
    finally:
        os.chdir(here)
        os.environ["PYTHONPATH"] = path or ""


def compare(
    ask: Callable[[int, Work], float], of_both: list[dict[str, Work]], options: Any
) -> None:
    """Print a row a kind of work."""
    names = [name for name in of_both[0] if not options.only or name in options.only.split(",")]
    print(f"{'work':22}{'base us':>10}{'new us':>10}{'q1':>8}{'median':>8}{'q3':>8}", flush=True)
    for name in names:
        found: list[tuple[float, float]] = []
        for number in range(-1, options.rounds):
            order = (0, 1) if number % 2 else (1, 0)
            one = {which: ask(which, of_both[which][name]) for which in order}
            if number >= 0:  # the first one warms up
                found.append((one[0], one[1]))
        ratios = [new / base for base, new in found]
        base, new = (statistics.median(one[which] for one in found) for which in (0, 1))
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{name:22}{base:10.1f}{new:10.1f}{low:8.3f}{middle:8.3f}{high:8.3f}", flush=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, required=True, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", help="names of works, by comma")
    options = parser.parse_args()
    if not (options.base / "broker").is_dir():
        sys.exit(f"{options.base} is no checkout of Tidemark")
    with (
        tempfile.TemporaryDirectory(prefix="pairs-") as data,
        running(options.base.resolve(), Path(data) / "base") as base,
        running(brokers.ROOT, Path(data) / "new") as new,
        Client(base.bootstrap) as of_base,
        Client(new.bootstrap) as of_new,
    ):
        clients, pids = (of_base, of_new), (base.pid, new.pid)
        compare(
            lambda which, work: round_of(clients[which], pids[which], work),
            [works(filled(client)) for client in clients],
            options,
        )


if __name__ == "__main__":
    main()
