"""A shard: what is written before an answer leaves, and what happens when it cannot be."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.state import GroupState
from broker.coordinator.shard import _TIMERS_AT_ONCE, ShardStage
from broker.replica.hosting import ReplicaEvents
from broker.topics.offsets_topic import OFFSETS_TOPIC
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.coordinator.served import ServedGroups, code_of_commit
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.data_plane import finish
from tests.support.worlds.local_log import read_bytes
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.waiting import until

LATE_MS = 5_000
"""The default of offsets.commit.timeout.ms."""


@pytest.fixture
def groups(tmp_path: Path) -> ServedGroups:
    return ServedGroups(tmp_path)


def slow(directory: Path) -> tuple[ServedGroups, HeldPool]:
    """Each append is committed by an fsync, which waits until it is released."""
    pool = HeldPool(is_holding=False)
    served = ServedGroups(directory, disk=FaultyDisk(), pool=pool, flush_messages=1)
    pool.is_holding = True
    return served, pool


async def test_a_commit_is_answered_at_once_where_one_replica_has_it(groups: ServedGroups) -> None:
    assert code_of_commit(groups.commit(7)) == 0
    assert await groups.committed() == (0, 7)


async def test_a_request_is_one_batch_of_the_shape_that_kafka_writes(groups: ServedGroups) -> None:
    groups.commit(7)
    data = read_bytes(groups.world.log(OFFSETS_TOPIC), 0, 10_000)
    [record] = iter_records(data)
    header = groups.world.log(OFFSETS_TOPIC).segments.all[0].batches(0)
    [(_, batch)] = list(header)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.attributes, batch.partition_leader_epoch) == (0, 3)
    assert record.timestamp == groups.world.clock.wall_ms()
    assert record.headers == []


async def test_a_commit_is_answered_after_its_fsync_where_the_topic_asks_for_one(
    tmp_path: Path,
) -> None:
    groups, pool = slow(tmp_path)
    answer = groups.commit(7)
    await pool.until_held()
    await turns()
    assert not answer.done()
    pool.release()
    assert code_of_commit(await answer) == 0


async def test_an_offset_is_not_told_before_it_is_committed(tmp_path: Path) -> None:
    groups, pool = slow(tmp_path)
    answer = groups.commit(7)
    told = asyncio.ensure_future(groups.committed())
    await pool.until_held()
    await turns()
    assert not told.done()
    pool.release()
    await answer
    assert await told == (0, 7)


async def test_an_offset_that_is_written_meanwhile_is_not_told(tmp_path: Path) -> None:
    groups, pool = slow(tmp_path)
    first = groups.commit(7)
    told = asyncio.ensure_future(groups.committed())
    await pool.until_held()
    await turns()
    pool.release(1)  # the fsync of the first ends,
    second = groups.commit(8)  # and another is written before the loop hears of it
    await first
    assert await told == (0, 7)
    assert not second.done()
    pool.stop_holding()
    assert code_of_commit(await second) == 0


async def test_a_commit_that_times_out_is_refused(
    tmp_path: Path,
) -> None:
    groups, pool = slow(tmp_path)
    answer = groups.commit(7)
    await pool.until_held()
    groups.world.scheduler.advance(LATE_MS)
    assert code_of_commit(await answer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    pool.release()


async def test_a_failed_fsync_refuses_the_commit(tmp_path: Path) -> None:
    groups, pool = slow(tmp_path)
    answer = groups.commit(7)
    await pool.until_held()
    assert isinstance(groups.world.disk, FaultyDisk)
    groups.world.disk.fail(["fsync"], path_part=OFFSETS_TOPIC)
    pool.release()
    assert code_of_commit(await answer) == ErrorCode.NOT_COORDINATOR
    assert code_of_commit(groups.commit(8)) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("config", "change", "code"),
    [
        ({"min_insync_replicas": 2}, {"replicas": (1, 2)}, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ({"max_message_bytes": 80}, {}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["too few in sync", "too large"],
)
async def test_what_cannot_be_appended_is_refused_and_forgotten(
    tmp_path: Path, config: dict[str, Any], change: dict[str, Any], code: ErrorCode
) -> None:
    groups = ServedGroups(tmp_path, **config)
    if change:
        groups.world.change(OFFSETS_TOPIC, **change)
    assert code_of_commit(groups.commit(7)) == code
    assert await groups.committed() == (0, -1)


async def test_a_full_disk_refuses_the_commit(tmp_path: Path) -> None:
    disk = FaultyDisk()
    groups = ServedGroups(tmp_path, disk=disk)
    disk.fail(["append"], path_part=OFFSETS_TOPIC)
    assert code_of_commit(groups.commit(7)) == ErrorCode.NOT_COORDINATOR


async def test_what_was_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    first = ServedGroups(tmp_path)
    for partition in range(3):
        first.commit(10 + partition, partition=partition)
    first.commit(99)
    again = first.restarted()
    await until(lambda: again.coordinator.shards[0].stage is ShardStage.ACTIVE)
    assert [await again.committed(partition=each) for each in range(3)] == [
        (0, 99),
        (0, 11),
        (0, 12),
    ]


async def test_all_members_have_their_sessions_after_a_restart(tmp_path: Path) -> None:
    first = ServedGroups(tmp_path)
    names = [f"g-{number}" for number in range(_TIMERS_AT_ONCE + 50)]
    joining = [first.join(group=name) for name in names]
    first.world.scheduler.advance(100)
    for name, waiting in zip(names, joining, strict=True):
        member = await waiting
        synced = await first.told(
            ApiKey.SYNC_GROUP,
            3,
            group_id=name,
            generation_id=member.generation_id,
            member_id=member.member_id,
            assignments=[{"member_id": member.member_id, "assignment": b"all"}],
        )
        assert synced.error_code == 0
    again = first.restarted()
    shard = again.coordinator.shards[0]
    await until(lambda: shard.stage is ShardStage.ACTIVE)
    counts = shard.state.counts
    assert (counts.members, counts.groups[GroupStatus.STABLE]) == (len(names), len(names))
    again.world.scheduler.advance(11_000)
    assert shard.state.counts.groups[GroupStatus.EMPTY] == len(names)


async def test_until_its_log_is_read_a_partition_is_loading(tmp_path: Path) -> None:
    first = ServedGroups(tmp_path)
    first.commit(7)
    pool = HeldPool(is_holding=False)
    again = first.restarted(pool=pool)
    pool.is_holding = True
    shard = again.coordinator.shards[0]
    await pool.until_held()
    assert shard.stage is ShardStage.LOADING
    assert await again.committed() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -2)
    assert code_of_commit(again.commit(1)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = await again.told(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    # As from Kafka: aiokafka gives up permanently when a heartbeat is answered with anything else.
    beat = await again.told(
        ApiKey.HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m", group_instance_id=None
    )
    assert beat.error_code == 0
    pool.stop_holding()
    await until(lambda: shard.stage is ShardStage.ACTIVE)
    assert await again.committed() == (0, 7)


async def test_a_load_ends_when_leadership_does(tmp_path: Path) -> None:
    first = ServedGroups(tmp_path)
    first.commit(7)
    pool = HeldPool(is_holding=False)
    again = first.restarted(pool=pool)
    pool.is_holding = True
    shard = again.coordinator.shards[0]
    await pool.until_held()
    again.coordinator.on_replicas(ReplicaEvents(followed=(shard.partition,)))
    pool.stop_holding()
    await turns()
    assert shard.stage is ShardStage.CLOSED
    assert await again.committed() == (ErrorCode.NOT_COORDINATOR, -2)


async def test_a_request_that_is_parked_hears_that_leadership_is_gone(
    groups: ServedGroups,
) -> None:
    await groups.joined()
    groups.commit(1, group="other")
    before = groups.coordinator.shards[0]
    waiting = groups.join()
    assert not waiting.done()
    groups.world.change(OFFSETS_TOPIC, leader=2, leader_epoch=4, replicas=(1, 2))
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert code_of_commit(groups.commit(1)) == ErrorCode.NOT_COORDINATOR
    assert groups.coordinator.shards == {}
    await until(lambda: not groups.coordinator._maintenance)
    assert before.state.counts.offsets == 0  # freed, in turns


async def test_a_commit_that_waits_hears_that_leadership_is_gone(tmp_path: Path) -> None:
    groups, pool = slow(tmp_path)
    answer = groups.commit(7)
    told = asyncio.ensure_future(groups.committed())
    await pool.until_held()
    groups.world.change(OFFSETS_TOPIC, leader=2, leader_epoch=4, replicas=(1, 2))
    pool.stop_holding()
    assert code_of_commit(await answer) == ErrorCode.NOT_COORDINATOR
    assert (await told)[0] == ErrorCode.NOT_COORDINATOR


async def test_a_new_epoch_of_the_same_leader_changes_nothing_for_its_groups(
    groups: ServedGroups,
) -> None:
    await groups.joined()
    waiting = groups.join()
    groups.commit(5, group="other")
    before = groups.coordinator.shards[0]
    groups.world.change(OFFSETS_TOPIC, leader_epoch=9)
    assert groups.coordinator.shards[0] is before
    assert not waiting.done()
    assert await groups.committed("other") == (0, 5)
    assert code_of_commit(groups.commit(6, group="other")) == 0


async def test_a_member_that_is_silent_is_gone_after_its_session(groups: ServedGroups) -> None:
    joined = await groups.joined()
    assert joined.error_code == 0
    groups.world.scheduler.advance(70_000)
    described = await groups.told(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
    assert described.groups[0].group_state == "Empty"


async def test_a_client_that_hangs_up_leaves_its_member_to_the_session(
    groups: ServedGroups,
) -> None:
    await groups.joined()
    waiting = groups.join()
    waiting.cancel()  # the connection has closed
    await turns()
    described = await groups.told(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
    assert len(described.groups[0].members) == 2
    groups.world.scheduler.advance(200_000)
    described = await groups.told(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
    assert described.groups[0].members == []


async def test_at_a_stop_all_that_wait_are_answered(groups: ServedGroups) -> None:
    await groups.joined()
    waiting = groups.join()
    await groups.coordinator.stop()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert code_of_commit(groups.commit(1)) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_offsets_of_a_deleted_topic_go(groups: ServedGroups) -> None:
    groups.commit(5)
    deleted = {"t": groups.world.topics["t"].id}
    await groups.coordinator._forget_topics(deleted)
    assert await groups.committed() == (0, -1)
    assert groups.coordinator.metrics.offset_deletions.value() > 0


async def test_a_failed_check_for_old_offsets_is_logged_and_the_next_one_works(
    groups: ServedGroups, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups.commit(5)
    groups.world.clock.advance(8 * 24 * 3_600_000)
    with monkeypatch.context() as broken:
        broken.setattr(GroupState, "expire_offsets", lambda _state, _now: iter([None]))
        await asyncio.wait({groups.coordinator.expire()})
    assert "maintenance of groups failed" in caplog.text
    await groups.coordinator.expire()
    assert await groups.committed() == (0, -1)


async def test_offsets_that_are_too_old_go(groups: ServedGroups) -> None:
    groups.commit(5)
    await groups.coordinator.expire()
    assert await groups.committed() == (0, 5)
    groups.world.clock.advance(6 * 24 * 3_600_000)
    await groups.coordinator.expire()
    assert await groups.committed() == (0, 5)
    groups.world.clock.advance(2 * 24 * 3_600_000)
    await groups.coordinator.expire()
    assert await groups.committed() == (0, -1)


@pytest.mark.parametrize("count", [1_000, 2_345])
async def test_very_many_groups_are_listed_in_turns(tmp_path: Path, count: int) -> None:
    groups = ServedGroups(tmp_path)
    names = {f"group-{number}" for number in range(count)}
    for name in names:
        groups.commit(1, group=name)
    handler = groups.handler(ApiKey.LIST_GROUPS)
    answer = await groups.ask(ApiKey.LIST_GROUPS, 5, states_filter=["empty"], types_filter=[])
    listed = finish(handler, 5, answer).groups
    assert {one.group_id for one in listed} == names
    assert len(listed) == count
    assert {(one.group_state, one.group_type) for one in listed} == {("Empty", "classic")}


async def test_groups_of_a_partition_that_is_led_elsewhere_are_not_listed(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path, partitions=2)
    names = [groups.group_in(0), groups.group_in(1)]
    for name in names:
        groups.commit(1, group=name)
    listed = await groups.told(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
    assert sorted(one.group_id for one in listed.groups) == sorted(names)
    groups.world.change(OFFSETS_TOPIC, 1, leader=2, leader_epoch=4, replicas=(1, 2))
    listed = await groups.told(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
    assert [one.group_id for one in listed.groups] == names[:1]
    assert groups.coordinator.shards[0].stage is ShardStage.ACTIVE
