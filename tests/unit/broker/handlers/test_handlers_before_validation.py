"""What clients hear of a tiered log that the tier has not validated under this leader epoch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.replica.partition import Partition
from broker.replica.validation import Validation
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from rlm.link.messages import Loss, ValidationWithdrawn
from tests.support.worlds.data_plane import NOW_MS, World, batch, call
from tests.support.worlds.remote_log import (
    SOUND,
    deleted,
    epoch_end,
    fetched,
    from_10,
    listed,
    lost,
)

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
WITHDRAWN = ValidationWithdrawn(b"i" * 16, 0, 3)
FAR_FUTURE_MS = NOW_MS + 1_000_000


def world_of(directory: Path, *, has_tier: bool = True, **config: bool) -> World:
    """Offsets 10 to 12 are here, those below are remote."""
    world = World(directory, has_tier=has_tier)
    from_10(world, **config)
    log = world.log("t")
    world.append("t", b"10", b"11", b"12")
    log.update_high_watermark(13)
    return world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = world_of(tmp_path, remote_storage_enable=True)
    yield world
    world.logs.close(clean=False)


def hosted(world: World) -> Partition:
    return world.replicas.require("t", 0)


def replica_fetched(world: World, offset: int, last_fetched_epoch: int) -> tuple[int, int]:
    """The error, and the end offset of the diverging epoch, that a replica is told."""
    world.change("t", replicas=(1, 2))
    handler = FetchHandler(
        world.replicas,
        world.ports,
        limits=FetchLimits(),
    )
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1000,
        "last_fetched_epoch": last_fetched_epoch,
    }
    fields = {
        "replica_id": 2,
        "max_wait_ms": 0,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
    }
    answer = call(handler, 12, fields).responses[0].partitions[0]
    return int(answer.error_code), answer.diverging_epoch.end_offset


def test_above_the_log_end_is_out_of_range_only_after_the_validation(world: World) -> None:
    assert fetched(world, 14) == STORAGE
    assert (fetched(world, 13), fetched(world, 12)) == (ErrorCode.NONE, ErrorCode.NONE)
    hosted(world).append(batch(b"produce does not wait"), now_ms=NOW_MS)
    assert fetched(world, 15) == STORAGE
    hosted(world).take_report(SOUND)
    assert fetched(world, 15) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_tier_learns_the_log_end_before_unvalidated_appends(
    world: World,
) -> None:
    partition = hosted(world)
    assert partition.log.unvalidated_end == 0, "as it was opened"
    for report in (lost(Loss.LEADER_EPOCH), WITHDRAWN):
        partition.append(batch(b"produce does not wait"), now_ms=NOW_MS)
        partition.take_report(report)
        world.change("t", leader_epoch=partition.leader_epoch + 1)
        assert partition.log.unvalidated_end == 0, "a new leader epoch validates nothing"
    partition.take_report(SOUND)
    assert partition.log.unvalidated_end == -1
    partition.take_report(WITHDRAWN)
    assert partition.log.unvalidated_end == partition.log.log_end_offset
    partition.take_report(SOUND)
    world.change("t", leader_epoch=partition.leader_epoch + 1)
    assert partition.log.unvalidated_end == partition.log.log_end_offset


def test_below_the_log_start_is_out_of_range_also_before_the_validation(world: World) -> None:
    assert deleted(world, 11) == (ErrorCode.NONE, 11)
    assert fetched(world, 5) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nobody_is_told_of_a_truncation_before_the_validation(world: World) -> None:
    world.change("t", leader_epoch=5)
    world.append("t", b"13")  # the end of epoch 3 is not the log end any more
    assert (epoch_end(world, 3), epoch_end(world, 5)) == (STORAGE, STORAGE)
    assert replica_fetched(world, 20, 3) == (STORAGE, -1)
    assert replica_fetched(world, 20, 9) == (STORAGE, -1)
    assert replica_fetched(world, 13, 3) == (ErrorCode.NONE, -1), "it agrees as far as it asks"
    hosted(world).take_report(SOUND)
    assert (epoch_end(world, 3), epoch_end(world, 5)) == (ErrorCode.NONE, ErrorCode.NONE)
    assert replica_fetched(world, 20, 3) == (ErrorCode.NONE, 13)
    assert replica_fetched(world, 20, 9)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_look_up_by_time_does_not_say_that_nothing_came_later(world: World) -> None:
    assert listed(world, FAR_FUTURE_MS)[0] == STORAGE
    assert listed(world, -1)[:2] == (ErrorCode.NONE, 13), "whoever begins there skips nothing"
    assert listed(world, -2) == (ErrorCode.NONE, 0, -1), "the chain below is not validated"
    hosted(world).take_report(SOUND)
    assert listed(world, FAR_FUTURE_MS) == (ErrorCode.NONE, -1, -1)
    assert listed(world, -2) == (ErrorCode.NONE, 0, 3)


class Reported:
    """What the tier has reported, as the broker keeps it."""

    def __init__(self, world: World) -> None:
        self._log = world.log("t")

    def highest_tiered_offset(self, topic_partition: TopicPartition) -> int:
        return int(self._log.copied_through)

    def earliest_pending_upload(self, topic_partition: TopicPartition) -> int:
        return max(int(self._log.copied_through) + 1, self._log.log_start_offset)


def test_what_the_tier_holds_is_not_said_before_it_has_reported(world: World) -> None:
    def tiered() -> list[tuple[int, int, int]]:
        remote = Reported(world)
        return [listed(world, timestamp, remote, version=11) for timestamp in (-5, -6)]

    unknown = [(int(ErrorCode.OFFSET_NOT_AVAILABLE), -1, -1)] * 2
    assert tiered() == unknown, "offsets 0 to 9 are remote, and -1 would say that none is"
    hosted(world).take_report(SOUND)
    assert tiered() == [(ErrorCode.NONE, -1, -1), (ErrorCode.NONE, 0, 3)], "nothing is copied"
    assert world.log("t").set_copied_through(9, 3)
    assert tiered() == [(ErrorCode.NONE, 9, 3), (ErrorCode.NONE, 10, 3)]
    hosted(world).take_report(lost(Loss.HOLE))
    assert tiered() == [(STORAGE, -1, -1)] * 2
    hosted(world).take_report(SOUND)
    world.change("t", leader_epoch=4)
    assert tiered() == unknown, "a new leader epoch validates again"


def test_unvalidated_records_are_not_out_of_range_for_delete_records(
    world: World,
) -> None:
    assert deleted(world, 14) == (STORAGE, -1)
    hosted(world).take_report(SOUND)
    assert deleted(world, 14)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("has_tier", "config"),
    [(True, {}), (False, {"remote_storage_enable": True})],
    ids=["a topic never tiered", "no remote tier"],
)
def test_where_nobody_validates_nobody_waits(
    tmp_path: Path, has_tier: bool, config: dict[str, bool]
) -> None:
    world = world_of(tmp_path, has_tier=has_tier, **config)
    assert fetched(world, 14) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert epoch_end(world) == ErrorCode.NONE
    assert listed(world, FAR_FUTURE_MS) == (ErrorCode.NONE, -1, -1)
    world.logs.close(clean=False)


@pytest.mark.parametrize(("name", "is_validated"), [("__consumer_offsets", False), ("t", True)])
def test_a_topic_that_the_tier_never_validates_is_not_waited_for(
    tmp_path: Path, name: str, is_validated: bool
) -> None:
    """An internal topic may bring such a setting along from Kafka."""
    world = World(tmp_path, has_tier=True)
    world.add_topic(name, remote_storage_enable=True)
    assert world.replicas.require(name, 0).is_sound is not is_validated
    world.logs.close(clean=False)


@pytest.mark.parametrize("setting", ["remote_storage_enable", "remote_log_delete_on_disable"])
def test_a_topic_whose_remote_records_are_being_dropped_is_validated_too(
    tmp_path: Path, setting: str
) -> None:
    world = world_of(tmp_path, **{setting: True})
    assert fetched(world, 14) == STORAGE
    hosted(world).take_report(SOUND)
    assert fetched(world, 14) == ErrorCode.OFFSET_OUT_OF_RANGE
    world.logs.close(clean=False)


def test_each_leader_epoch_is_validated_anew(world: World) -> None:
    hosted(world).take_report(SOUND)
    world.change("t", isr=(1,))
    assert fetched(world, 14) == ErrorCode.OFFSET_OUT_OF_RANGE, "the same leader epoch"
    world.change("t", leader_epoch=4)
    assert fetched(world, 14) == STORAGE
    hosted(world).take_report(SOUND)
    world.change("t", leader=2, leader_epoch=5)
    world.change("t", leader=1, leader_epoch=6)
    assert fetched(world, 14) == STORAGE


@pytest.mark.parametrize("loss", list(Loss))
def test_a_loss_stays_until_a_validation_ends_it(world: World, loss: Loss) -> None:
    hosted(world).take_report(lost(loss))
    hosted(world).take_report(WITHDRAWN)
    assert hosted(world).verdict is loss
    assert fetched(world, 14) == STORAGE
    world.change("t", leader_epoch=4)
    assert hosted(world).verdict is loss
    hosted(world).take_report(SOUND)
    assert fetched(world, 14) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_withdrawn_validation_is_none(world: World) -> None:
    hosted(world).take_report(SOUND)
    hosted(world).take_report(WITHDRAWN)
    assert hosted(world).verdict is Validation.OPEN
    assert fetched(world, 14) == STORAGE


@pytest.mark.parametrize("loss", list(Loss))
def test_a_loss_is_no_longer_this_brokers_where_another_one_leads(world: World, loss: Loss) -> None:
    hosted(world).take_report(lost(loss))
    world.change("t", leader=2, leader_epoch=4)
    world.change("t", leader=1, leader_epoch=5)
    assert hosted(world).verdict is Validation.OPEN
    hosted(world).append(batch(b"continues"), now_ms=NOW_MS)


def test_a_parked_fetch_is_woken_by_each_change_of_the_validation(world: World) -> None:
    woken = []

    class Waiter:
        def on_bytes(self, size_bytes: int) -> None:
            raise AssertionError("no bytes came")

        def on_change(self) -> None:
            woken.append(hosted(world).verdict)

    hosted(world).waiters[Waiter()] = None
    reports = [SOUND, SOUND, lost(Loss.LOG_END), lost(Loss.CHAIN), WITHDRAWN, SOUND]
    for report in reports:
        hosted(world).take_report(report)
    assert woken == [Validation.SOUND, Loss.LOG_END, Loss.CHAIN, Validation.SOUND]


def test_the_epoch_of_a_log_start_that_is_local_needs_no_validation(tmp_path: Path) -> None:
    world = World(tmp_path, has_tier=True)
    world.add_topic("t", remote_storage_enable=True)
    world.append("t", b"here")
    assert not hosted(world).is_sound
    assert listed(world, -2) == (ErrorCode.NONE, 0, 3)
    world.logs.close(clean=False)
