"""A shard: what is written before an answer leaves, and what happens when it cannot be."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.group.decision import Decision, GroupRecord
from broker.coordinator.group.deletion import OFFSETS_AT_ONCE
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.records import CommittedOffset, offset_key, offset_value
from broker.coordinator.group.state import GroupState
from broker.coordinator.shard import _ANSWERS_AT_ONCE, _TIMERS_AT_ONCE, ShardStage
from broker.replica.events import ReplicaEvents
from broker.topics.offsets_topic import OFFSETS_TOPIC
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import BatchHeader
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire.api_keys import ApiKey
from runtime.sim.faulty_disk import FaultyDisk
from runtime.timing_wheel import TICK_MS
from tests.support.coordinator.served import ServedGroups, code_of_commit
from tests.support.worlds.data_plane import NOW_MS, finish
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
    data = groups.world.log(OFFSETS_TOPIC).read_bytes(0, 10_000)
    [record] = iter_records(data)
    header = groups.world.log(OFFSETS_TOPIC).segments[0].batches(0)
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
    pool.is_holding = False
    pool.release()
    assert code_of_commit(await second) == 0


async def test_a_commit_that_takes_too_long_is_refused_and_the_offset_is_not_told(
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
    pool.is_holding = False
    pool.release()
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
    pool.is_holding = False
    pool.release()
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
    await until(lambda: not groups.coordinator._upkeep)
    assert before.state.counts.offsets == 0  # freed, in turns


async def test_a_commit_that_waits_hears_that_leadership_is_gone(tmp_path: Path) -> None:
    groups, pool = slow(tmp_path)
    answer = groups.commit(7)
    told = asyncio.ensure_future(groups.committed())
    await pool.until_held()
    groups.world.change(OFFSETS_TOPIC, leader=2, leader_epoch=4, replicas=(1, 2))
    pool.is_holding = False
    pool.release()
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


async def test_a_check_for_old_offsets_that_fails_is_logged_and_the_next_one_works(
    groups: ServedGroups, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups.commit(5)
    groups.world.clock.advance(8 * 24 * 3_600_000)
    with monkeypatch.context() as broken:
        broken.setattr(GroupState, "expire_offsets", lambda _state, _now: iter([None]))
        await asyncio.wait({groups.coordinator.expire()})
    assert "upkeep of groups failed" in caplog.text
    await groups.coordinator.expire()
    assert await groups.committed() == (0, -1)


async def test_offsets_that_are_too_old_go(groups: ServedGroups) -> None:
    groups.commit(5)
    await groups.coordinator.expire()
    assert await groups.committed() == (0, 5)
    groups.world.clock.advance(8 * 24 * 3_600_000)
    await groups.coordinator.expire()
    assert await groups.committed() == (0, -1)


LONG = 8_000


def with_long_names(directory: Path, *, max_message_bytes: int) -> tuple[ServedGroups, list[str]]:
    """Groups whose tombstones together are above the limit of a batch."""
    groups = ServedGroups(directory, max_message_bytes=max_message_bytes)
    names = [f"{number:03}".ljust(LONG, "g") for number in range(20)]
    for name in names:
        assert code_of_commit(groups.commit(1, group=name)) == 0
    return groups, names


def keep(groups: ServedGroups, group: str, count: int, *, topic_id: bytes = bytes(16)) -> None:
    """Let a group have offsets of so many partitions."""
    value = offset_value(CommittedOffset(1, -1, "", NOW_MS, topic_id=topic_id))
    records = [GroupRecord(offset_key(group, "t", number), value) for number in range(count)]
    decision = Decision(records=tuple(records), may_split=True)
    assert groups.coordinator.shards[0].carry_out(decision) is None


async def test_only_who_asks_by_id_is_told_whose_offset_it_is(groups: ServedGroups) -> None:
    keep(groups, "g", 1, topic_id=b"an earlier topic")
    assert await groups.committed() == (0, 1)
    found = groups.world.topics["t"].id
    asked = {"group_id": "g", "topics": [{"topic_id": found, "partition_indexes": [0]}]}
    answer = await groups.told(ApiKey.OFFSET_FETCH, 10, groups=[asked])
    assert answer.groups[0].topics[0].partitions[0].committed_offset == -1


async def many_join(groups: ServedGroups) -> "list[asyncio.Future[Any]]":
    """A group of very many members whose join phase has just ended."""
    joining = [groups.join() for _ in range(3 * _ANSWERS_AT_ONCE)]
    await turns()
    groups.world.scheduler.advance(2 * TICK_MS)
    return joining


async def test_very_many_members_are_answered_in_turns(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path)
    joining = await many_join(groups)
    shard = groups.coordinator.shards[0]
    left = [shard.parked_count]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(shard.parked_count)
    answers = await asyncio.gather(*joining)
    assert {(one.error_code, one.generation_id) for one in answers} == {(0, 1)}
    assert max(a - b for a, b in pairwise(left)) == _ANSWERS_AT_ONCE
    assert sum(len(one.members) for one in answers) == len(joining)


async def test_answers_that_are_about_to_leave_leave_when_leadership_ends(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path)
    joining = await many_join(groups)
    groups.world.change(OFFSETS_TOPIC, leader=2, leader_epoch=4, replicas=(1, 2))
    answers = await asyncio.gather(*joining)
    assert {one.error_code for one in answers} <= {0, ErrorCode.NOT_COORDINATOR}


async def test_old_offsets_go_also_where_one_batch_cannot_hold_them(tmp_path: Path) -> None:
    groups, _ = with_long_names(tmp_path, max_message_bytes=3 * LONG)
    groups.world.clock.advance(8 * 24 * 3_600_000)
    await groups.coordinator.expire()
    assert groups.coordinator.shards[0].state.counts.offsets == 0
    sizes = [header.size_bytes for header in batches(groups)]
    assert max(sizes) <= 3 * LONG


async def test_a_removal_that_cannot_be_written_is_said_once_and_counts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups, names = with_long_names(tmp_path, max_message_bytes=3 * LONG)
    groups.commit(1, group="short")
    log = groups.world.log(OFFSETS_TOPIC)
    log.set_config(replace(log.config, max_message_bytes=1_000))
    groups.world.clock.advance(8 * 24 * 3_600_000)
    await groups.coordinator.expire()
    assert len(caplog.records) == 1
    assert "max.message.bytes is 1000" in caplog.text
    assert "raise max.message.bytes" in caplog.text
    assert groups.coordinator.shards[0].state.counts.offsets == len(names) + 1
    assert groups.coordinator.metrics.offset_expirations.value() == 0


@pytest.mark.parametrize("count", [30, OFFSETS_AT_ONCE * 2 + 5])
async def test_a_group_is_deleted_also_where_one_batch_cannot_hold_it(
    tmp_path: Path, count: int
) -> None:
    groups = ServedGroups(tmp_path, max_message_bytes=3 * LONG)
    name = "g" * (LONG if count < 100 else 20)
    keep(groups, name, count)
    answer = await groups.told(ApiKey.DELETE_GROUPS, 1, groups_names=[name])
    assert [one.error_code for one in answer.results] == [0]
    assert groups.coordinator.shards[0].state.counts.offsets == 0
    assert list(groups.coordinator.shards[0].state.groups()) == []
    assert max(header.size_bytes for header in batches(groups)) <= 3 * LONG


async def test_a_group_of_many_offsets_with_a_member_keeps_them(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path)
    keep(groups, "g", OFFSETS_AT_ONCE + 5)
    await groups.joined()
    answer = await groups.told(ApiKey.DELETE_GROUPS, 1, groups_names=["g"])
    assert [one.error_code for one in answer.results] == [ErrorCode.NON_EMPTY_GROUP]
    assert groups.coordinator.shards[0].state.counts.offsets == OFFSETS_AT_ONCE + 5


async def test_a_request_that_is_too_large_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = ServedGroups(tmp_path, max_message_bytes=80)
    assert code_of_commit(groups.commit(7)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "max.message.bytes is 80" in caplog.text


def batches(groups: ServedGroups) -> list[BatchHeader]:
    return [
        header
        for segment in groups.world.log(OFFSETS_TOPIC).segments
        for _, header in segment.batches(0)
    ]


async def turns_of(answer: Any) -> tuple[Any, int]:
    """An answer, and how many turns of the event loop it took."""
    task, count = asyncio.ensure_future(answer), 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    return task.result(), count


@pytest.mark.parametrize("version", [7, 9])
async def test_very_many_offsets_are_told_in_turns_as_they_were_when_asked(
    groups: ServedGroups, version: int
) -> None:
    keep(groups, "g", 5_000)
    asked = {"groups": [{"group_id": "g", "topics": None}]}
    fields = asked if version > 7 else {"group_id": "g", "topics": None}
    waiting = asyncio.ensure_future(groups.ask(ApiKey.OFFSET_FETCH, version, **fields))
    await asyncio.sleep(0)
    groups.commit(2)
    raw, count = await turns_of(waiting)
    answer = finish(groups.handler(ApiKey.OFFSET_FETCH), version, raw)
    [topic] = (answer.groups[0] if version > 7 else answer).topics
    assert [one.partition_index for one in topic.partitions] == list(range(5_000))
    assert {one.committed_offset for one in topic.partitions} == {1}
    assert count > 3


async def test_very_many_groups_are_described_in_turns(groups: ServedGroups) -> None:
    names = [f"group-{number}" for number in range(2_000)]
    for api_key, version, fields in (
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": names}),
        (ApiKey.OFFSET_FETCH, 9, {"groups": [{"group_id": n, "topics": None} for n in names]}),
    ):
        raw, count = await turns_of(groups.ask(api_key, version, **fields))
        answer = finish(groups.handler(api_key), version, raw)
        assert [one.group_id for one in answer.groups] == names
        assert count > 10


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
