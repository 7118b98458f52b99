"""Consumer groups on Tidemark and on Apache Kafka: rebalances, commits, and members that are idle.

    python -m benchmarks.groups [--rounds 5] [--only rebalance,commit,idle] [--no-kafka]

* rebalance: 100 groups of 10 members on a topic of 2,000 partitions, one connection a member. All
  1,000 members join again at once. A round is over when the last one has its assignment.
* commit: 16 members, each with one commit on its way, of one partition and of 100.
* idle: 10,000 members in 1,000 groups on 200 connections; each sends a heartbeat every 3 s.

CPU is the broker process's own (user and system). Both brokers run with
`group.initial.rebalance.delay.ms=0`. Compare only within one run.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from benchmarks import brokers
from benchmarks.group_members import NONE, Connection, Member, answer, make_topic
from kafka_protocol.wire.api_keys import ApiKey

GROUPS, GROUP_SIZE, PARTITIONS = 100, 10, 2_000
COMMITTERS, COMMIT_S = 16, 8.0
IDLE_GROUPS, IDLE_CONNECTIONS, IDLE_S, HEARTBEAT_S = 1_000, 200, 30.0, 3.0
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
TOPIC: Final = "work"
SETTLED_BELOW: Final = 0.05
"""Share of a core that an idle broker takes at most."""


class Cost:
    """CPU seconds of a process since the block began."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before = self._cpu_s()
        self._began = time.monotonic()

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    @property
    def cpu_s(self) -> float:
        return self._cpu_s() - self._before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def rss_mb(self) -> float:
        return self._process.memory_info().rss / 1e6


async def settled(pid: int, deadline_s: float = 60) -> None:
    """Return when the broker is idle: the partitions of a new topic are made beside the loop."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        cost = Cost(pid)
        await asyncio.sleep(1)
        if cost.cpu_s / cost.seconds < SETTLED_BELOW:
            return
    raise TimeoutError(f"the broker is not idle after {deadline_s} s")


async def rebalance(bootstrap: str, pid: int, rounds: int) -> dict[str, float]:
    await make_topic(bootstrap, TOPIC, PARTITIONS)
    await settled(pid)
    members = [
        Member(f"group-{number}", TOPIC, PARTITIONS, await Connection.open(bootstrap))
        for number in range(GROUPS)
        for _ in range(GROUP_SIZE)
    ]
    forming = Cost(pid)
    await asyncio.gather(*(each.join(size=GROUP_SIZE) for each in members))
    figures = {"form_s": forming.seconds, "form_cpu_s": forming.cpu_s}
    times, cpu = [], []
    for number in range(rounds):
        note = number.to_bytes(4, "big")
        cost = Cost(pid)
        await asyncio.gather(*(each.join(size=GROUP_SIZE, note=note) for each in members))
        times.append(cost.seconds)
        cpu.append(cost.cpu_s)
    generations = {each.group: set[int]() for each in members}
    for each in members:
        generations[each.group].add(each.generation)
    assert all(len(found) == 1 for found in generations.values()), "a group is not of one mind"
    figures |= {"again_s": statistics.median(times), "again_cpu_s": statistics.median(cpu)}
    for each in members:
        each.connection.close()
    return figures


async def commit(bootstrap: str, pid: int) -> dict[str, float]:
    await make_topic(bootstrap, TOPIC, PARTITIONS)
    await settled(pid)
    members = [
        Member(f"group-{number}", TOPIC, PARTITIONS, await Connection.open(bootstrap))
        for number in range(COMMITTERS)
    ]
    await asyncio.gather(*(each.join(size=1) for each in members))
    figures: dict[str, float] = {}
    for partitions in (1, 100):
        await _committing(members, partitions, 1.0)
        cost = Cost(pid)
        waits = await _committing(members, partitions, COMMIT_S)
        spent, took = cost.cpu_s, cost.seconds
        quantiles = statistics.quantiles(waits, n=100)
        figures |= {
            f"of_{partitions}.per_s": len(waits) / took,
            f"of_{partitions}.p50_ms": quantiles[49] * 1_000,
            f"of_{partitions}.p99_ms": quantiles[98] * 1_000,
            f"of_{partitions}.cpu_us": spent / len(waits) * 1e6,
        }
    return figures


async def _committing(members: Sequence[Member], partitions: int, seconds: float) -> list[float]:
    end, waits = time.monotonic() + seconds, list[float]()

    async def work(member: Member) -> None:
        request = member.commit_frame(7, partitions)
        checked = False
        while (began := time.monotonic()) < end:
            data = await member.connection.exchange(request)
            waits.append(time.monotonic() - began)
            if not checked:
                checked = True
                parts = answer(ApiKey.OFFSET_COMMIT, data).topics[0].partitions
                assert all(part.error_code == NONE for part in parts), parts

    await asyncio.gather(*(work(member) for member in members))
    return waits


async def idle(bootstrap: str, pid: int) -> dict[str, float]:
    await make_topic(bootstrap, TOPIC, PARTITIONS)
    await settled(pid)
    before_mb = Cost(pid).rss_mb
    connections = [await Connection.open(bootstrap) for _ in range(IDLE_CONNECTIONS)]
    members: list[Member] = []
    at_once = IDLE_CONNECTIONS // GROUP_SIZE
    joining = Cost(pid)
    for first in range(0, IDLE_GROUPS, at_once):
        # One member a connection at a time: a parked JoinGroup holds up what is behind it.
        wave = [
            Member(f"idle-{first + place // GROUP_SIZE}", TOPIC, PARTITIONS, connection)
            for place, connection in enumerate(connections)
        ]
        await asyncio.gather(*(each.join(size=GROUP_SIZE) for each in wave))
        members += wave
    figures = {"join_s": joining.seconds, "join_cpu_s": joining.cpu_s}
    requests = [(each.connection, each.heartbeat_frame()) for each in members]
    lost = set[int]()

    async def beat_all() -> None:
        began, turn = time.monotonic(), HEARTBEAT_S / 100
        for tick in range(100):
            waiting = [c.exchange(data) for c, data in requests[tick::100]]
            for data in await asyncio.gather(*waiting):
                lost.add(answer(ApiKey.HEARTBEAT, data).error_code)
            await asyncio.sleep(max(0.0, began + (tick + 1) * turn - time.monotonic()))

    await beat_all()
    cost = Cost(pid)
    while cost.seconds < IDLE_S:
        await beat_all()
    figures |= {"core_percent": cost.cpu_s / cost.seconds * 100, "rss_mb": cost.rss_mb}
    figures["kb_per_member"] = (cost.rss_mb - before_mb) * 1_000 / len(members)
    assert lost == {NONE}, f"members were lost: {lost}"
    return figures


async def work(kind: str, bootstrap: str, pid: int, rounds: int) -> dict[str, float]:
    if kind == "rebalance":
        return await rebalance(bootstrap, pid, rounds)
    return await (commit if kind == "commit" else idle)(bootstrap, pid)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="rebalance,commit,idle")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-tidemark", action="store_true")
    parser.add_argument("--members", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.members:
        kind, bootstrap, pid = options.members
        print(json.dumps(asyncio.run(work(kind, bootstrap, int(pid), options.rounds))))
        return
    started = {"tidemark": brokers.tidemark, "kafka": brokers.kafka}
    if options.no_kafka:
        del started["kafka"]
    if options.no_tidemark:
        del started["tidemark"]
    print(f"{'figure':30}" + "".join(f"{label:>14}" for label in started))
    for kind in options.only.split(","):
        by_figure: dict[str, list[float]] = {}
        for label, start in started.items():
            with (
                tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch,
                start(Path(scratch) / label, tiered=False, settings=SETTINGS) as running,
            ):
                command = [sys.executable, "-m", "benchmarks.groups", "--rounds"]
                command += [str(options.rounds), "--members", kind, running.bootstrap]
                asked = [*command, str(running.pid)]
                answered = subprocess.run(asked, check=True, stdout=subprocess.PIPE)
                for name, value in json.loads(answered.stdout).items():
                    by_figure.setdefault(f"{kind}.{name}", []).append(value)
        for name, values in by_figure.items():
            print(f"{name:30}" + "".join(f"{value:14.2f}" for value in values), flush=True)


if __name__ == "__main__":
    main()
