"""Shards that come and go with leadership: what is left of one, and what the next one is."""

import copy
from pathlib import Path

import pytest

from broker.coordinator.group.retention import SLICE
from broker.coordinator.shard import ShardStage
from broker.replica.hosting import ReplicaEvents
from broker.topics.offsets_topic import OFFSETS_TOPIC
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import LogDir
from tests.support.coordinator.served import ServedGroups, code_of_commit
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.moving import steps_of
from tests.support.worlds.pools import turns
from tests.support.worlds.waiting import until


@pytest.fixture
def groups(tmp_path: Path) -> ServedGroups:
    return ServedGroups(tmp_path)


@pytest.mark.parametrize("how", ["followed", "gone"])
async def test_what_is_not_led_any_more_is_not_served_and_leaves_no_timer(
    groups: ServedGroups, how: str
) -> None:
    await groups.joined()
    partition = groups.coordinator.shards[0].partition
    assert len(groups.coordinator._wheel) > 0
    groups.coordinator.on_replicas(ReplicaEvents(**{how: (partition,)}))
    assert len(groups.coordinator._wheel) == 0
    assert groups.coordinator.shards == {}
    assert code_of_commit(groups.commit(1)) == ErrorCode.NOT_COORDINATOR


async def test_a_partition_that_was_made_anew_has_a_shard_of_its_own(groups: ServedGroups) -> None:
    before = groups.coordinator.shards[0]
    again = copy.copy(before.partition)
    groups.coordinator.on_replicas(ReplicaEvents(led=(again,)))
    assert before.stage is ShardStage.CLOSED
    assert groups.coordinator.shards[0].partition is again


async def test_a_partition_that_cannot_be_loaded_is_not_served_and_is_told(tmp_path: Path) -> None:
    first = ServedGroups(tmp_path)
    first.commit(7)
    first.world.logs.close(clean=True)
    disk = FaultyDisk()
    groups = ServedGroups(tmp_path, disk=disk, topics=first.world.topics)
    disk.fail(["read_at"], path_part=OFFSETS_TOPIC)
    shard = groups.coordinator.shards[0]
    await until(lambda: shard.stage is not ShardStage.LOADING)
    assert shard.stage is ShardStage.FAILED
    asked = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    answer = await groups.told(ApiKey.HEARTBEAT, 4, **asked)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    [problem] = groups.coordinator.problems()
    assert f"{OFFSETS_TOPIC}-0" in problem


async def test_a_log_moved_before_its_load_is_loaded_from_the_new_directory(
    tmp_path: Path,
) -> None:
    first = ServedGroups(tmp_path / "a")
    first.commit(7)
    first.world.logs.close(clean=True)
    groups = ServedGroups(tmp_path / "a", topics=first.world.topics)
    shard, logs = groups.coordinator.shards[0], groups.world.logs
    partition, old = shard.partition, shard.partition.log
    logs.dirs.append(LogDir(tmp_path, groups.world.disk))
    move = logs.moves.plan(old, *logs.dirs)
    logs.moves.begin(move)
    partition.pause()
    old.roll()
    old.lease.grant(truncates=True)
    swap = logs.plan_swap(logs.moves.finish(move, steps_of(move)))
    swapped = swap.carry_out()
    await turns()
    assert shard.stage is ShardStage.LOADING
    new = logs.take_swapped(swap, swapped)
    assert isinstance(new, PartitionLog)
    partition.replace_log(new)
    partition.lead_on()
    old.lease.take_back()
    await until(lambda: shard.stage is not ShardStage.LOADING)
    assert shard.stage is ShardStage.ACTIVE
    assert await groups.committed() == (0, 7)


async def test_a_check_for_old_offsets_ends_with_the_first_write_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    groups = ServedGroups(tmp_path, disk=disk)
    for number in range(SLICE + 1):
        groups.commit(1, group=f"g{number}")
    groups.world.clock.advance(8 * 24 * 3_600_000)
    disk.fail(["append"], path_part=OFFSETS_TOPIC)
    await groups.coordinator.expire()
    assert "batches=1 " in caplog.text


async def test_a_commit_that_was_answered_has_no_timer(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path, flush_messages=1)
    answer = await groups.commit(7)
    assert code_of_commit(answer) == 0
    waiting = [timer for _, _, timer in groups.world.scheduler._queue if timer.name == "once"]
    assert [timer for timer in waiting if not timer.cancelled] == []
