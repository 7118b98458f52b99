"""Part `wide`: controllers with very many partitions, begun from their snapshots.

Every controller has a snapshot of all partitions. Then a follower starts with its disk, and without
it. The active controller is killed, and all start at once. Each time a client asks for a vote and
for records; the time of the answers shows how long a controller's loop is held.
"""

import asyncio
import time
from pathlib import Path

from benchmarks.controllers_client import ALTER, Pings, altered, create_topics, first_change
from benchmarks.controllers_costs import Costs, behind, caught_up, idle_again
from kafka_protocol.errors import ErrorCode
from tests.support.quorum.committed import parse_name
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kept_brokers import registered
from tests.support.quorum.quorum import Plan, Quorum

PARTITIONS_A_TOPIC = 100
TOPICS_A_REQUEST = 10
TOPIC = "wide-0"
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": str(1 << 20)}
FILLER = "follower.replication.throttled.replicas"
FILLER_VALUE = ",".join(f"{number}:{number}" for number in range(2_500))
SNAPSHOT_S = 180.0


async def wide(kind: type[Controller], directory: Path, partitions: int) -> dict[str, float]:
    """Figures of one kind."""
    plan = Plan(kind, is_dynamic=False, has_links=False, settings=SETTINGS)
    async with Quorum(directory, plan) as quorum:
        _, tasks = await registered(quorum, 1)
        try:
            figures = await _created(quorum, partitions)
            for step in (_follower_starts, _follower_fetches, _leader_killed, _all_start):
                try:
                    figures |= await step(quorum)
                except TimeoutError:  # the other figures count
                    figures[f"{step.__name__}: not done in time"] = float("inf")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return figures


async def _created(quorum: Quorum, partitions: int) -> dict[str, float]:
    leader = (await quorum.leader()).node_id
    talk, began = quorum.talk(leader), time.perf_counter()
    names = [f"wide-{number}" for number in range(partitions // PARTITIONS_A_TOPIC)]
    costs = Costs(quorum)
    async with Pings(quorum.controllers[leader]) as pings:
        for first in range(0, len(names), TOPICS_A_REQUEST):
            await create_topics(talk, names[first : first + TOPICS_A_REQUEST], PARTITIONS_A_TOPIC)
    took = time.perf_counter() - began
    await _until_snapshots(quorum, leader)
    return {
        "created, s": took,
        "created: CPU s, snapshots included": costs.cpu_s,
        "created: the leader's longest answer, ms": pings.longest_s * 1_000,
        "resident MB of the leader": costs.rss_mb(leader),
    }


async def _until_snapshots(quorum: Quorum, leader: int) -> None:
    """Change one config until each controller has a snapshot of everything before."""
    end = (await quorum.leader()).high_watermark
    talk, number = quorum.talk(leader), 0
    async with asyncio.timeout(SNAPSHOT_S):
        while not all(_snapshot_end(one) >= end for one in quorum.controllers.values()):
            number += 1
            fields = altered(TOPIC, FILLER, f"{FILLER_VALUE},{number}:0")
            answer = await talk.ask(ALTER, fields, timeout_s=30)
            assert answer.responses[0].error_code == ErrorCode.NONE, answer
            await asyncio.sleep(0.05)
    await quorum.settled()


def _snapshot_end(controller: Controller) -> int:
    found = controller.metadata.glob("*.checkpoint")
    return max((parse_name(path).end_offset for path in found), default=-1)


async def _follower_starts(quorum: Quorum, *, wiped: bool = False) -> dict[str, float]:
    leader = (await quorum.settled()).node_id
    follower = next(one for id_, one in quorum.controllers.items() if id_ != leader)
    await follower.stop()
    if wiped:
        follower.wipe()
        await follower.format()
    await behind(quorum, follower.node_id)
    began = time.perf_counter()
    async with Pings(follower) as pings, Pings(quorum.controllers[leader]) as others:
        await follower.start(wait=False)
        await caught_up(quorum, follower.node_id)
        took = time.perf_counter() - began
        await pings.has_answered.wait()
        loaded = await idle_again(follower) - began
    row = "a wiped follower fetches it: " if wiped else "a follower starts: "
    return {
        f"{row}first answer, s": pings.first_s,
        f"{row}caught up, s": took,
        f"{row}idle again, s": loaded,
        f"{row}its longest answer, ms": pings.longest_s * 1_000,
        f"{row}the leader's longest answer, ms": others.longest_s * 1_000,
    }


async def _follower_fetches(quorum: Quorum) -> dict[str, float]:
    return await _follower_starts(quorum, wiped=True)


async def _leader_killed(quorum: Quorum) -> dict[str, float]:
    leader = (await quorum.settled()).node_id
    others = [one for one in quorum.controllers if one != leader]
    began = time.perf_counter()
    quorum.controllers[leader].kill()
    async with (
        Pings(quorum.controllers[others[0]]) as first,
        Pings(quorum.controllers[others[1]]) as second,
    ):
        await first_change(quorum, others, TOPIC)
        took = time.perf_counter() - began
        for one in others:
            await idle_again(quorum.controllers[one])
        await quorum.controllers[leader].start()
        await caught_up(quorum, leader)
    longest_s = max(first.longest_s, second.longest_s)
    return {
        "the leader killed: without a controller, s": took,
        "the leader killed: longest answer of the others, ms": longest_s * 1_000,
    }


async def _all_start(quorum: Quorum) -> dict[str, float]:
    await quorum.settled()
    await quorum.stop()
    began = time.perf_counter()
    for one in quorum.controllers.values():
        await one.start(wait=False)
    await first_change(quorum, quorum.controllers, TOPIC)
    return {"all three start: to the first change, s": time.perf_counter() - began}
