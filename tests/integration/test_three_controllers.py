"""Three controllers as processes: killed, paused and cut off under continuous changes."""

import asyncio
from pathlib import Path

import pytest

from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.committed import read_copy
from tests.support.quorum.kafka_reads import dumped_topics, shell_topics
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.rounds import run_rounds
from tests.support.rounds import rounds

ROUNDS = rounds("TIDEMARK_CONTROLLER_ROUNDS", quick=3, full=15)


@pytest.mark.rounds(seconds=90)
@pytest.mark.patience(seconds=60 + 10 * ROUNDS)
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
async def test_no_acknowledged_change_is_lost_and_no_refused_one_appears(
    tmp_path: Path, is_dynamic: bool
) -> None:
    async with Quorum(tmp_path, Plan(TidemarkController, is_dynamic)) as quorum:
        report = await run_rounds(quorum, seed=3 + is_dynamic, rounds=ROUNDS, say=print)
    assert report.wrong == []
    assert report.acknowledged >= 10 * ROUNDS


@pytest.mark.smoke
async def test_a_controller_that_is_stopped_hands_over_at_once(tmp_path: Path) -> None:
    async with Quorum(tmp_path, Plan(TidemarkController, False, has_links=False)) as quorum:
        leader = await quorum.leader()
        code = await quorum.controllers[leader.node_id].stop()
        assert code == 0
        other = await quorum.leader(above=leader.epoch)
        assert other.node_id != leader.node_id
        told = quorum.controllers[other.node_id].log_file.read_text()
        assert "EndQuorumEpoch" not in told, "nothing of it is an error"


async def test_a_wiped_static_voter_comes_back_through_the_log(tmp_path: Path) -> None:
    async with Quorum(tmp_path, Plan(TidemarkController, False, has_links=False)) as quorum:
        leader = await quorum.leader()
        wiped = next(one for i, one in quorum.controllers.items() if i != leader.node_id)
        await quorum.settled()
        wiped.kill()
        wiped.wipe()
        await wiped.start()
        await quorum.settled()
        end = (await quorum.leader()).high_watermark
        await quorum.settled()
        copies = [read_copy(one, end) for one in quorum.controllers.values()]
        assert len({copy.image.provenance for copy in copies}) == 1


@pytest.mark.patience(seconds=180)
async def test_kafkas_tools_read_what_three_controllers_wrote(tmp_path: Path) -> None:
    require_kafka_tools()
    async with Quorum(tmp_path, Plan(TidemarkController, True)) as quorum:
        report = await run_rounds(quorum, seed=7, rounds=1)
        assert report.wrong == []
        end = (await quorum.leader()).high_watermark
        await quorum.settled()
        await quorum.stop()
        for one in quorum.controllers.values():
            theirs = await asyncio.to_thread(dumped_topics, one.metadata, end)
            ours = read_copy(one, end).topics
            assert theirs == ours
            # The shell reads a log from its first record on, as if it were a snapshot.
            (log,) = one.metadata.glob("*.log")
            assert await asyncio.to_thread(shell_topics, log) == set(ours)
