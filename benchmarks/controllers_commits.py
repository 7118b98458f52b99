"""Part `commits`: time until a small change is committed, and its cost."""

import asyncio
import os
import statistics
import time
from pathlib import Path

from benchmarks.controllers_client import Changer, committing, create_topics
from benchmarks.controllers_costs import Costs
from benchmarks.group_members import Connection
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kept_brokers import registered
from tests.support.quorum.quorum import Plan, Quorum

LINGERS_MS = (0, 25)
AT_ONCE = (1, 100)


def fsync_ms(directory: Path, count: int = 200) -> float:
    """Median of a small append with fsync on the disk that the controllers use."""
    directory.mkdir(parents=True)
    waits = []
    with (directory / "fsync").open("ab", buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(bytes(200))
            os.fsync(file.fileno())
            waits.append((time.perf_counter() - began) * 1_000)
    return statistics.median(waits)


async def commits(kind: type[Controller], directory: Path, seconds: float) -> dict[str, float]:
    """Figures of one kind; `seconds` each row, after as long to get warm."""
    figures = {"fsync alone, p50 ms": fsync_ms(directory)}
    for linger_ms in LINGERS_MS:
        settings = {"controller.quorum.append.linger.ms": str(linger_ms)}
        plan = Plan(kind, is_dynamic=False, has_links=False, settings=settings)
        async with Quorum(directory / str(linger_ms), plan) as quorum:
            figures |= await _of_linger(quorum, linger_ms, seconds)
    return figures


async def _of_linger(quorum: Quorum, linger_ms: int, seconds: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    _, tasks = await registered(quorum, 1)
    try:
        leader = quorum.controllers[(await quorum.leader()).node_id]
        names = [f"bench-{number}" for number in range(max(AT_ONCE))]
        await create_topics(quorum.talk(leader.node_id), names, 1)
        changers = [
            Changer(await Connection.open(f"127.0.0.1:{leader.port}"), name) for name in names
        ]
        for at_once in AT_ONCE:
            await committing(changers[:at_once], seconds)
            costs = Costs(quorum)
            waits = await committing(changers[:at_once], seconds)
            cpu_s, took_s = costs.cpu_s, costs.seconds
            cuts = statistics.quantiles(waits, n=100)
            row = f"linger {linger_ms:2} ms, {at_once:3} at once: "
            figures |= {
                f"{row}p50 ms": cuts[49] * 1_000,
                f"{row}p99 ms": cuts[98] * 1_000,
                f"{row}a second": len(waits) / took_s,
                f"{row}CPU us of a commit": cpu_s / len(waits) * 1e6,
            }
        for changer in changers:
            changer.close()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return figures
