"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords over partitions in one and two tiers."""

import asyncio
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.delete_records import DeleteRecordsHandler
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.log.truncation import truncate_fully_and_start_at
from tests.support.worlds.data_plane import NOW_MS, World, batch, call, start
from tests.support.worlds.local_log import retain
from tests.support.worlds.remote_log import impatient

FIRST_VERSION = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


class FakeOffsets:
    """The tier's knowledge of where records are."""

    def __init__(self, found: Any = None, highest: int = -1) -> None:
        self.found, self.highest = found, highest
        self.deadline_ms = 0

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, deadline_ms: int
    ) -> "asyncio.Future[Any]":
        self.deadline_ms = deadline_ms
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(self.found, Exception):
            future.set_exception(self.found)
        else:
            future.set_result(self.found)
        return future

    def highest_tiered_offset(self, topic_partition: TopicPartition) -> int:
        return self.highest

    def earliest_pending_upload(self, topic_partition: TopicPartition) -> int:
        return self.highest + 1


def offsets(
    world: World, version: int, *timestamps: int, remote: Any = None, epoch: int = -1, **more: Any
) -> list[tuple[int, int, int, int]]:
    """(error, timestamp, offset, leader epoch) of partition 0 of `t`, one a timestamp."""
    found = []
    for timestamp in timestamps:
        fields = {
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "timestamp": timestamp,
                            "current_leader_epoch": epoch,
                        }
                    ],
                }
            ]
        } | more
        handler = ListOffsetsHandler(
            world.replicas,
            clock=world.clock,
            pool=world.pool,
            holding=impatient(world),
            remote=remote,
        )
        p = call(handler, version, fields).topics[0].partitions[0]
        found.append((p.error_code, p.timestamp, p.offset, p.leader_epoch))
    return found


def append_at(world: World, *timestamps: int) -> None:
    data = build_batch([(t, None, b"v", []) for t in timestamps])
    world.replicas.require("t", 0).append(data, now_ms=world.clock.wall_ms())


def two_tiers(world: World) -> None:
    """Offsets 0 and 1 are only in the remote tier, 2 and 3 local."""
    world.add_topic("t", remote_storage_enable=True, local_retention_ms=0)
    append_at(world, NOW_MS, NOW_MS + 10)
    log = world.log("t")
    log.roll(world.clock.wall_ms())
    append_at(world, NOW_MS + 20, NOW_MS + 30)
    assert log.set_copied_through(1, 3)
    world.clock.advance(1000)
    retain(log, world.clock.wall_ms())
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 2)


@pytest.mark.parametrize("version", range(1, 12))
def test_special_timestamps_have_a_first_version(world: World, version: int) -> None:
    world.add_topic("t")
    append_at(world, NOW_MS, NOW_MS + 10)
    for timestamp, first in FIRST_VERSION.items():
        ((code, *_),) = offsets(world, version, timestamp)
        assert code == (0 if version >= first else ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("timestamp", [-1, -2, -4, -5, -6, -7])
def test_offsets_that_need_no_record_are_answered_synchronously(
    world: World, timestamp: int
) -> None:
    """librdkafka asks for each partition by itself: all else on its connection waits meanwhile."""
    world.add_topic("t")
    handler = ListOffsetsHandler(
        world.replicas, clock=world.clock, pool=world.pool, holding=impatient(world)
    )
    asked = [{"partition_index": index, "timestamp": timestamp} for index in range(499)]
    fields = {"topics": [{"name": "t", "partitions": asked}]}
    answer = start(handler, 11, fields)
    assert not isawaitable(answer)
    assert len(answer.topics[0].partitions) == 499


@pytest.mark.parametrize("timestamp", [-7, -1000, -(2**63)])
def test_bad_input_other_negative_timestamps_are_refused(world: World, timestamp: int) -> None:
    world.add_topic("t")
    assert offsets(world, 11, timestamp)[0][0] == ErrorCode.UNSUPPORTED_VERSION


def test_a_topic_in_one_tier(world: World) -> None:
    world.add_topic("t")
    assert offsets(world, 11, -1, -2, -3, -4, -5, -6, 5) == [
        (0, -1, 0, 3),
        (0, -1, 0, 3),
        (0, -1, -1, -1),
        (0, -1, 0, 3),
        (0, -1, -1, -1),
        (0, -1, -1, -1),
        (0, -1, -1, -1),
    ]
    append_at(world, NOW_MS, NOW_MS + 30, NOW_MS + 10)
    assert offsets(world, 11, -1, -2, -3, NOW_MS + 1, NOW_MS + 31) == [
        (0, -1, 3, 3),
        (0, -1, 0, 3),
        (0, NOW_MS + 30, 1, 3),
        (0, NOW_MS + 30, 1, 3),
        (0, -1, -1, -1),
    ]


def test_a_topic_in_two_tiers(world: World) -> None:
    two_tiers(world)
    remote = FakeOffsets((NOW_MS + 10, 1, 3), highest=1)
    assert offsets(world, 11, -1, -2, -4, -5, -6, NOW_MS + 5, remote=remote) == [
        (0, -1, 4, 3),
        (0, -1, 0, 3),
        (0, -1, 2, 3),
        (0, -1, 1, 3),
        (0, -1, 2, 3),
        (0, NOW_MS + 10, 1, 3),
    ]
    nothing_there = FakeOffsets(None, highest=1)
    assert offsets(world, 11, NOW_MS + 15, remote=nothing_there) == [(0, NOW_MS + 20, 2, 3)]


def test_the_tier_may_fail_or_be_late(world: World) -> None:
    two_tiers(world)
    for code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR):
        remote = FakeOffsets(ApiError(code))
        assert offsets(world, 11, NOW_MS, remote=remote)[0][0] == code


def test_the_clients_timeout_bounds_the_look_up(world: World) -> None:
    two_tiers(world)
    remote = FakeOffsets((1, 0, 3))
    offsets(world, 10, NOW_MS, remote=remote, timeout_ms=700)
    assert remote.deadline_ms == world.clock.monotonic_ms() + 700
    offsets(world, 9, NOW_MS, remote=remote)
    assert remote.deadline_ms == world.clock.monotonic_ms() + 30_000


def test_epochs_and_duplicates_are_checked(world: World) -> None:
    world.add_topic("t")
    assert offsets(world, 4, -1, epoch=2)[0][0] == ErrorCode.FENCED_LEADER_EPOCH
    assert offsets(world, 4, -1, epoch=4)[0][0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    one = {"partition_index": 0, "timestamp": -1}
    fields = {"topics": [{"name": "t", "partitions": [one, one]}]}
    handler = ListOffsetsHandler(
        world.replicas, clock=world.clock, pool=world.pool, holding=impatient(world)
    )
    codes = [p.error_code for p in call(handler, 5, fields).topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST]  # once, as Kafka
    fields = {"topics": [{"name": "t", "partitions": [one]}, {"name": "t", "partitions": [one]}]}
    (topic,) = call(handler, 5, fields).topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.INVALID_REQUEST]


def test_a_negative_epoch_is_an_old_one(world: World) -> None:
    world.add_topic("t")
    assert offsets(world, 4, -1, epoch=-2)[0][0] == ErrorCode.FENCED_LEADER_EPOCH
    assert offsets(world, 4, -1, epoch=-1)[0][0] == ErrorCode.NONE


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ended(world: World, version: int) -> None:
    world.add_topic("t", leader_epoch=2)
    world.append("t", b"0", b"1")
    world.change("t", leader_epoch=5)
    world.append("t", b"2")
    handler = OffsetForLeaderEpochHandler(world.replicas, impatient(world))

    def end(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
        asked = {
            "partition": partition,
            "current_leader_epoch": current,
            "leader_epoch": epoch,
        }
        fields = {"topics": [{"topic": "t", "partitions": [asked]}]}
        p = call(handler, version, fields).topics[0].partitions[0]
        return p.error_code, p.leader_epoch, p.end_offset

    assert end(2) == (0, 2, 2)
    assert end(4) == (0, 2, 2)
    assert end(5) == (0, 5, 3)
    assert end(1) == (0, 1, 0)
    assert end(6) == (0, -1, -1)
    assert end(5, current=4) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end(5, current=6) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end(5, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_a_lookup_by_time_is_repeated_if_the_records_leave_the_local_log(
    world: World,
) -> None:
    """The remote tier did not have it yet, the local log does not have it any more."""
    world.add_topic("t", remote_storage_enable=True)
    for value in (b"0", b"1"):
        world.append("t", value)
    log = world.log("t")
    log.set_config(LogConfig(remote_storage_enable=True, local_retention_bytes=0))

    class Remote(FakeOffsets):
        asked = 0

        def offset_for_timestamp(
            self, topic_partition: TopicPartition, timestamp_ms: int, deadline_ms: int
        ) -> "asyncio.Future[Any]":
            self.asked += 1
            self.found = None if self.asked == 1 else (NOW_MS, 1, 1)
            if self.asked == 1:
                truncate_fully_and_start_at(log, 3, keep_log_start=True)  # copied and expired
            return super().offset_for_timestamp(topic_partition, timestamp_ms, deadline_ms)

    # One segment is remote already, two records are here.
    truncate_fully_and_start_at(log, 1, keep_log_start=True)
    world.append("t", b"1")
    world.append("t", b"2")
    remote = Remote()
    handler = ListOffsetsHandler(
        world.replicas, clock=world.clock, pool=world.pool, holding=impatient(world), remote=remote
    )
    partition = {"partition_index": 0, "timestamp": NOW_MS}
    fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": [partition]}]}
    assert call(handler, 7, fields).topics[0].partitions[0].offset == 1
    assert remote.asked == 2


class TestDeleteRecords:
    def _delete(
        self, world: World, topic: str, *wanted: tuple[int, int], version: int = 2
    ) -> list[tuple[int, int]]:
        partitions = [{"partition_index": i, "offset": offset} for i, offset in wanted]
        fields = {"topics": [{"name": topic, "partitions": partitions}]}
        handler = DeleteRecordsHandler(world.replicas, world.pool, impatient(world))
        answer = call(handler, version, fields)
        return [(p.error_code, p.low_watermark) for p in answer.topics[0].partitions]

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_the_log_start_is_on_disk_before_the_answer(
        self, world: World, tmp_path: Path, version: int
    ) -> None:
        world.add_topic("t", 2)
        for index in (0, 1):
            world.append("t", b"0", b"1", b"2", index=index)
        assert self._delete(world, "t", (0, 2), (1, -1), version=version) == [(0, 2), (0, 3)]
        data = (tmp_path / "log-start-offset-checkpoint").read_bytes()
        assert offset_checkpoint.parse(data) == {
            TopicPartition("t", 0): 2,
            TopicPartition("t", 1): 3,
        }

    def test_only_offsets_up_to_the_high_watermark(self, world: World) -> None:
        world.add_topic("t")
        world.append("t", b"0", b"1")
        for offset in (3, -2, -(2**63), 2**63 - 1):
            assert self._delete(world, "t", (0, offset)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
        assert self._delete(world, "t", (0, 1)) == [(0, 1)]
        assert self._delete(world, "t", (0, 0)) == [(0, 1)]

    @pytest.mark.parametrize(
        ("topic", "code"),
        [
            ("__cluster_metadata", ErrorCode.POLICY_VIOLATION),
            ("__remote_log_metadata", ErrorCode.POLICY_VIOLATION),
            ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("compacted", ErrorCode.POLICY_VIOLATION),
        ],
    )
    def test_bad_input_guarded_topics(self, world: World, topic: str, code: ErrorCode) -> None:
        world.add_topic("compacted", cleanup_policy=frozenset({"compact"}))
        assert self._delete(world, topic, (0, 0)) == [(code, -1)]

    def test_a_parked_fetch_is_woken(self, world: World) -> None:
        world.add_topic("t")
        world.append("t", b"0")
        woken = []

        class Waiter:
            def on_bytes(self, size_bytes: int) -> None:
                raise AssertionError("no bytes came")

            def on_change(self) -> None:
                woken.append(1)

        world.replicas.require("t", 0).waiters[Waiter()] = None
        self._delete(world, "t", (0, 1))
        assert woken == [1]


def test_a_batch_helper_is_one_record_a_value() -> None:
    assert batch(b"a", b"b")[57:61] == b"\0\0\0\x02"
