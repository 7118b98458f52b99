"""Part `loss`: how long no controller takes changes after the end of the active one."""

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.controllers_client import create_topics, first_change
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kept_brokers import registered
from tests.support.quorum.quorum import Plan, Quorum

TOPIC = "bench"


async def loss(
    kind: type[Controller], directory: Path, *, kills: int, stops: int
) -> dict[str, float]:
    """Figures of one kind with default timeouts: rounds of kill -9, then of SIGTERM."""
    plan = Plan(kind, is_dynamic=False, has_links=False)
    async with Quorum(directory, plan) as quorum:
        _, tasks = await registered(quorum, 1)
        try:
            await create_topics(quorum.talk((await quorum.leader()).node_id), [TOPIC], 1)
            killed = [await _without(quorum, is_graceful=False) for _ in range(kills)]
            stopped = [await _without(quorum, is_graceful=True) for _ in range(stops)]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return _row("kill -9", killed) | _row("SIGTERM", stopped)


async def _without(quorum: Quorum, *, is_graceful: bool) -> float:
    """Seconds from the active controller's end to the first change; whole again afterwards."""
    leader = (await quorum.settled()).node_id
    controller = quorum.controllers[leader]
    began = time.perf_counter()
    if is_graceful:
        stopping = asyncio.create_task(controller.stop())
        await asyncio.sleep(0)  # the signal is sent
    else:
        controller.kill()
    await first_change(quorum, [one for one in quorum.controllers if one != leader], TOPIC)
    took = time.perf_counter() - began
    if is_graceful:
        await stopping
    await controller.start()
    return took


def _row(what: str, seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    row = f"without a controller, {what}: "
    return {
        f"{row}rounds": len(ordered),
        f"{row}median s": statistics.median(ordered),
        f"{row}p95 s": ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
        f"{row}longest s": ordered[-1],
    }
