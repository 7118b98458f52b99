"""A controller whose disk is lost comes back through a snapshot and the log after it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.kafka.tools import require_kafka_tools, why_not
from tests.support.quorum.changes import Changes
from tests.support.quorum.committed import differences, parse_name, read_copy
from tests.support.quorum.controllers import DESCRIBED, Controller
from tests.support.quorum.kafka_controllers import MixedQuorum
from tests.support.quorum.kafka_reads import shell_topics
from tests.support.quorum.kept_brokers import registered, until_registered
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]

SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "8000",
    "metadata.max.retention.bytes": "1",
}
DEADLINE_S = 60.0


@asynccontextmanager
async def _with_snapshots(
    directory: Path, *, is_dynamic: bool, kafkas: int = 0
) -> AsyncIterator[Quorum]:
    """A quorum whose controllers all have a snapshot, and records behind it."""
    plan = Plan(TidemarkController, is_dynamic, has_links=False, settings=SNAPSHOTS)
    async with MixedQuorum(directory, plan, kafkas=kafkas) as quorum:
        await _change_until(quorum, lambda: all(map(_snapshots, quorum.controllers.values())))
        await quorum.settled()
        yield quorum


async def _change_until(quorum: Quorum, done: Any) -> None:
    _, tasks = await registered(quorum, seed=1)
    changes = Changes(quorum, seed=1)
    tasks.append(asyncio.create_task(changes.run()))
    await until(done, "there are snapshots on all controllers", deadline_s=DEADLINE_S)
    await changes.rest()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _snapshots(controller: Controller) -> list[int]:
    """Ends of those after 0-0, rising."""
    ends = (parse_name(path).end_offset for path in controller.metadata.glob("*.checkpoint"))
    return sorted(end for end in ends if end > 0)


def _first_offset(controller: Controller) -> int:
    return min(int(path.stem) for path in controller.metadata.glob("*.log"))


async def _all_are_equal(quorum: Quorum) -> None:
    end = (await quorum.leader()).high_watermark
    await quorum.settled()
    copies = [read_copy(one, end) for one in quorum.controllers.values()]
    assert differences(copies) == []
    assert copies[0].topics


async def _a_follower(quorum: Quorum) -> Controller:
    leader = await quorum.leader()
    return next(one for i, one in quorum.controllers.items() if i != leader.node_id)


async def _replicas(quorum: Quorum, leader_id: int) -> tuple[set[Any], set[Any]]:
    """(id, directory id) of voters, and of observers."""
    answer = await quorum.talk(leader_id).ask(ApiKey.DESCRIBE_QUORUM, DESCRIBED, timeout_s=5)
    one = answer.topics[0].partitions[0]
    return (
        {(voter.replica_id, voter.replica_directory_id) for voter in one.current_voters},
        {(other.replica_id, other.replica_directory_id) for other in one.observers},
    )


async def test_a_wiped_static_voter_comes_back_through_a_snapshot(tmp_path: Path) -> None:
    async with _with_snapshots(tmp_path, is_dynamic=False) as quorum:
        wiped = await _a_follower(quorum)
        wiped.kill()
        wiped.wipe()
        await wiped.start()
        await quorum.settled()
        assert _first_offset(wiped) > 0, "its log begins where a snapshot ends"
        await _all_are_equal(quorum)


@pytest.mark.jvm
@pytest.mark.parametrize("kafkas", [1, 2])
async def test_a_wiped_voter_is_fed_by_a_snapshot_of_the_other_kind(
    tmp_path: Path, kafkas: int
) -> None:
    """The only one of its kind: Kafka's by ours, ours by Kafka's."""
    require_kafka_tools()
    async with _with_snapshots(tmp_path, is_dynamic=False, kafkas=kafkas) as quorum:
        wiped = quorum.controllers[3 if kafkas == 1 else 1]
        wiped.kill()
        for other in (one for one in quorum.controllers.values() if one is not wiped):
            other.kill()  # Kafka's lets the log before a snapshot go soon after its start
            await other.start()
            await quorum.leader()
        wiped.wipe()
        await wiped.start()
        await quorum.settled()
        assert _first_offset(wiped) > 0, "its log begins where a snapshot ends"
        await _all_are_equal(quorum)


async def test_a_wiped_voter_of_the_log_comes_back_as_an_observer(tmp_path: Path) -> None:
    async with _with_snapshots(tmp_path, is_dynamic=True) as quorum:
        wiped = await _a_follower(quorum)
        leader = await quorum.leader()
        voters, _ = await _replicas(quorum, leader.node_id)
        wiped.kill()
        wiped.wipe()
        await wiped.format("--no-initial-controllers")
        await wiped.start()
        await quorum.settled()
        meta = parse_meta_properties((wiped.logs / META_PROPERTIES).read_bytes())
        key = (wiped.node_id, meta.directory_id)
        now, observers = await _replicas(quorum, (await quorum.leader()).node_id)
        assert now == voters
        assert key in observers
        assert key not in voters
        assert _first_offset(wiped) > 0, "its log begins where a snapshot ends"
        await _all_are_equal(quorum)
        await _one_voter_and_an_observer_are_no_majority(quorum, wiped)


async def _one_voter_and_an_observer_are_no_majority(quorum: Quorum, observer: Controller) -> None:
    leader = await quorum.leader()
    (lost,) = (
        one for i, one in quorum.controllers.items() if i not in (leader.node_id, observer.node_id)
    )
    lost.kill()
    await quorum.leaderless()
    await lost.start()
    await quorum.leader(above=leader.epoch)
    await until_registered(quorum, seed=2)


async def test_kafkas_shell_shows_our_snapshots(tmp_path: Path) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    async with _with_snapshots(tmp_path, is_dynamic=True) as quorum:
        await quorum.stop()
        for one in quorum.controllers.values():
            end = _snapshots(one)[-1]
            (file,) = one.metadata.glob(f"{end:020}-*.checkpoint")
            theirs = await asyncio.to_thread(shell_topics, file)
            assert theirs == set(read_copy(one, end).topics)
            assert theirs
