"""Controllers of Apache Kafka and of ours in one quorum: real processes, changes and losses."""

import asyncio
from pathlib import Path

import pytest

from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.kafka_controllers import MixedQuorum
from tests.support.quorum.kafka_reads import dumped_topics
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan
from tests.support.quorum.rounds import run_rounds
from tests.support.rounds import rounds

ROUNDS = rounds("TIDEMARK_MIXED_ROUNDS", quick=4, full=20)

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=200)]


WITHOUT_TIMEOUTS = {"controller.quorum.fetch.timeout.ms": "120000"}
"""No follower stands by itself in time: a leader that stops must hand the lead over."""
TURNS_MAX = 8


@pytest.mark.rounds(seconds=90)
@pytest.mark.patience(seconds=120 + 15 * ROUNDS)
@pytest.mark.parametrize("kafkas", [1, 2])
async def test_whoever_leads_nothing_acknowledged_is_lost(tmp_path: Path, kafkas: int) -> None:
    """Only the other implementation shows that each can follow, and continue after, the other."""
    require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False)
    async with MixedQuorum(tmp_path, plan, kafkas=kafkas) as quorum:
        report = await run_rounds(quorum, seed=kafkas, rounds=ROUNDS, say=print)
        end = (await quorum.settled()).high_watermark
        places = [one.metadata for one in quorum.controllers.values()]
        shown = [await asyncio.to_thread(dumped_topics, place, end) for place in places]
    assert report.wrong == []
    assert len(set(report.led)) > 1, "the lead goes over"
    assert shown[0] == shown[1] == shown[2]


@pytest.mark.patience(seconds=240)
@pytest.mark.parametrize("kafkas", [1, 2])
async def test_a_leader_that_stops_hands_over_to_the_other_kind(
    tmp_path: Path, kafkas: int
) -> None:
    """Only here does a resignation of each come to the other, beside a third of either kind."""
    require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False, settings=WITHOUT_TIMEOUTS)
    handed: set[tuple[str, str]] = set()
    async with MixedQuorum(tmp_path, plan, kafkas=kafkas) as quorum:
        for _ in range(TURNS_MAX):
            leader = await quorum.settled()
            stopped = quorum.controllers[leader.node_id]
            assert await stopped.stop() == stopped.terminated
            after = await quorum.leader(above=leader.epoch)
            print(f"{leader.node_id} handed on to {after.node_id}")
            handed.add((stopped.kind, quorum.controllers[after.node_id].kind))
            if handed >= {("tidemark", "kafka"), ("kafka", "tidemark")}:
                break
            await stopped.start()
    assert handed >= {("tidemark", "kafka"), ("kafka", "tidemark")}


@pytest.mark.patience(seconds=240)
@pytest.mark.parametrize("kafkas", [1, 2])
@pytest.mark.parametrize("deed", ["stop", pytest.param("kill", marks=pytest.mark.long(seconds=80))])
async def test_each_node_leads_and_is_ended_in_turn(tmp_path: Path, kafkas: int, deed: str) -> None:
    """Only here does each node of a mixed quorum lose the lead under changes, and take it."""
    require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False)
    async with MixedQuorum(tmp_path, plan, kafkas=kafkas) as quorum:
        report = await run_rounds(quorum, seed=kafkas, rounds=3, in_turn=deed, say=print)
    assert report.wrong == []
    assert sorted(report.led) == [1, 2, 3]
