"""A shard with very much at once: batches that fit, and answers in turns."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from broker.coordinator.group.decision import Decision, GroupRecord
from broker.coordinator.group.deletion import OFFSETS_AT_ONCE
from broker.coordinator.group.records import CommittedOffset, offset_key, offset_value
from broker.coordinator.shard import _ANSWERS_AT_ONCE, batches_of
from broker.topics.offsets_topic import OFFSETS_TOPIC
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import BatchHeader
from kafka_protocol.records.keyed import keyed_batch
from kafka_protocol.wire.api_keys import ApiKey
from runtime.timing_wheel import TICK_MS
from tests.support.coordinator.served import ServedGroups, code_of_commit
from tests.support.worlds.data_plane import NOW_MS, finish
from tests.support.worlds.pools import turns


@pytest.fixture
def groups(tmp_path: Path) -> ServedGroups:
    return ServedGroups(tmp_path)


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


async def test_removals_that_cannot_be_written_are_said_once_and_not_counted(
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
    assert groups.coordinator.shards[0].state.counts.offsets == len(names)
    assert (
        groups.coordinator.metrics.offset_expirations.value() == 2
    )  # the short one, and its group


async def test_one_removal_that_cannot_be_written_holds_no_other_up(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path)
    names = ["a", "b".ljust(1_200, "b"), "c", "d"]
    for name in names:
        groups.commit(1, group=name)
    log = groups.world.log(OFFSETS_TOPIC)
    # The removal of the offset does not fit, that of its group does, and has to wait for it.
    removal = GroupRecord(offset_key(names[1], "t", 0), None)
    size = len(keyed_batch([removal], timestamp_ms=NOW_MS, codec=0))
    log.set_config(replace(log.config, max_message_bytes=size - 1))
    groups.world.clock.advance(8 * 24 * 3_600_000)
    await groups.coordinator.expire()
    state = groups.coordinator.shards[0].state
    assert [one.group_id for one in state.groups()] == [names[1]]
    assert state.counts.offsets == 1
    expired = groups.coordinator.metrics.offset_expirations.value()
    # Once it can be written it goes with its group, and nothing is left to be counted twice.
    log.set_config(replace(log.config, max_message_bytes=10_000))
    await groups.coordinator.expire()
    assert list(state.groups()) == []
    assert groups.coordinator.metrics.offset_expirations.value() == expired * 4 / 3


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
        for segment in groups.world.log(OFFSETS_TOPIC).segments.all
        for _, header in segment.batches(0)
    ]


async def turns_of(answer: Any) -> tuple[Any, int]:
    """An answer, and how many iterations of the event loop it took."""
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


async def test_very_many_groups_are_deleted_in_turns(groups: ServedGroups) -> None:
    names = [f"group-{number}" for number in range(500)]
    raw, count = await turns_of(groups.ask(ApiKey.DELETE_GROUPS, 2, groups_names=names))
    answer = finish(groups.handler(ApiKey.DELETE_GROUPS), 2, raw)
    assert [one.group_id for one in answer.results] == names
    assert count > 10


async def test_very_many_offsets_are_deleted_in_turns_and_told_as_one_answer(
    tmp_path: Path,
) -> None:
    groups = ServedGroups(tmp_path)
    groups.world.add_topic("u", 1)
    keep(groups, "g", 2_300)
    image = groups.world.topics["t"]
    wide = structs.replace(image, partitions=dict.fromkeys(range(2_301), image.partitions[0]))
    groups.world.topics["t"] = wide
    asked = [
        {"name": "t", "partitions": [{"partition_index": n} for n in range(2_302)]},
        {"name": "u", "partitions": [{"partition_index": 0}]},
    ]
    raw, count = await turns_of(groups.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=asked))
    answer = finish(groups.handler(ApiKey.OFFSET_DELETE), 0, raw)
    found = {one.name: one.partitions for one in answer.topics}
    assert list(found) == ["t", "u"]
    codes = {one.partition_index: one.error_code for one in found["t"]}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == dict.fromkeys(range(2_301), 0) | {2_301: unknown}
    assert len(found["t"]) == 2_302
    assert count > 4
    assert max(header.record_count for header in batches(groups)[1:]) <= 500
    assert groups.coordinator.shards[0].state.counts.offsets == 0


def cut(sizes: list[int], size_max: int) -> list[list[int]]:
    """Keys of so many bytes; a record has 32 bytes beside its key."""
    records = [GroupRecord(bytes(size), None) for size in sizes]
    return [[len(one.key) for one in some] for some in batches_of(records, size_max)]


def test_as_many_records_as_fit_are_one_batch() -> None:
    assert cut([68] * 5, 200) == [[68, 68], [68, 68], [68]]
    assert cut([68] * 5, 199) == [[68]] * 5
    assert cut([68] * 5, 500) == [[68] * 5]


def test_a_record_that_is_too_large_goes_alone() -> None:
    assert cut([900, 10, 10, 900, 10], 100) == [[900], [10, 10], [900], [10]]
