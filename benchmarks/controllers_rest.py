"""Parts `idle` and `start`: the cost of idle controllers, and the time of a start."""

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.controllers_client import Pings
from benchmarks.controllers_costs import Costs, behind, caught_up
from tests.support.quorum.controllers import Controller
from tests.support.quorum.quorum import Plan, Quorum

SETTLE_S = 5.0


async def idle(kind: type[Controller], directory: Path, seconds: float) -> dict[str, float]:
    """Three controllers without brokers and clients."""
    async with Quorum(directory, Plan(kind, is_dynamic=False, has_links=False)) as quorum:
        leader = (await quorum.settled()).node_id
        await asyncio.sleep(SETTLE_S)  # what a start leaves to be done
        costs = Costs(quorum)
        await asyncio.sleep(seconds)
        followers = [one for one in quorum.controllers if one != leader]
        took = costs.seconds
        return {
            "idle leader, per cent of a core": costs.cpu_s_of(leader) / took * 100,
            "idle follower, per cent of a core": statistics.mean(
                costs.cpu_s_of(one) / took * 100 for one in followers
            ),
            "idle leader, resident MB": costs.rss_mb(leader),
            "idle follower, resident MB": statistics.mean(costs.rss_mb(one) for one in followers),
        }


async def start(kind: type[Controller], directory: Path, runs: int) -> dict[str, float]:
    """A follower that comes back to two others."""
    answers, whole = [], []
    async with Quorum(directory, Plan(kind, is_dynamic=False, has_links=False)) as quorum:
        for _ in range(runs):
            leader = (await quorum.settled()).node_id
            follower = next(one for id_, one in quorum.controllers.items() if id_ != leader)
            await follower.stop()
            await behind(quorum, follower.node_id)
            began = time.perf_counter()
            async with Pings(follower) as pings:
                await follower.start(wait=False)
                await caught_up(quorum, follower.node_id)
                whole.append(time.perf_counter() - began)
                await pings.has_answered.wait()
            answers.append(pings.first_s)
    return {
        "start to the first answer, median s": statistics.median(answers),
        "start to caught up, median s": statistics.median(whole),
        "start to caught up, longest s": max(whole),
    }
