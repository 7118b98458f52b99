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

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=120)]


@pytest.mark.rounds(seconds=90)
@pytest.mark.patience(seconds=120 + 15 * ROUNDS)
@pytest.mark.parametrize("kafkas", [1, 2])
async def test_whoever_leads_nothing_acknowledged_is_lost(tmp_path: Path, kafkas: int) -> None:
    """Only the other implementation shows that each can follow, and go on after, the other."""
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
