"""What clients hear while the log start, the epoch chain or the log end is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from local_log.errors import KafkaStorageError
from rlm.link.messages import Loss
from tests.support.worlds.data_plane import NOW_MS, World, batch
from tests.support.worlds.remote_log import (
    SOUND,
    deleted,
    epoch_end,
    fetched,
    from_10,
    listed,
    lost,
)

NINE = ErrorCode.REPLICA_NOT_AVAILABLE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A log whose offsets below 10 are remote; three records are here."""
    world = World(tmp_path)
    from_10(world, remote_storage_enable=True)
    log = world.log("t")
    world.append("t", b"10", b"11", b"12")
    log.update_high_watermark(13)
    yield world
    world.logs.close(clean=False)


@pytest.mark.parametrize("said_by", ["broker", "tier"])
def test_a_lost_chain_answers_9_where_epochs_of_remote_offsets_are_asked(
    world: World, said_by: str
) -> None:
    assert (epoch_end(world), listed(world, -2)[0]) == (ErrorCode.NONE, ErrorCode.NONE)
    partition = world.replicas.require("t", 0)
    if said_by == "tier":
        partition.take_report(lost(Loss.CHAIN))
    else:
        partition.log.epoch_file.lost = "missing"
    assert epoch_end(world) == NINE
    assert listed(world, -2) == (ErrorCode.NONE, 0, -1), "the log start is known, its epoch is not"
    assert fetched(world, 10) == ErrorCode.NONE
    with pytest.raises(KafkaError) as raised:
        partition.check_chain_known()
    assert raised.value.code == NINE
    assert deleted(world, 10) == (ErrorCode.NONE, 10)
    partition.take_report(SOUND)
    assert epoch_end(world) == ErrorCode.NONE


def test_with_an_unknown_log_start_deletion_works_from_the_local_start_on(
    world: World,
) -> None:
    log = world.log("t")
    log.log_start_offset, log.log_start_known = 10, False
    assert epoch_end(world) == NINE
    assert deleted(world, 9) == (NINE, -1)
    assert not log.log_start_known
    assert deleted(world, 10) == (ErrorCode.NONE, 10)
    assert log.log_start_known
    assert epoch_end(world) == ErrorCode.NONE


def test_all_records_may_be_deleted_while_the_log_start_is_unknown(world: World) -> None:
    log = world.log("t")
    log.log_start_offset, log.log_start_known = 10, False
    assert deleted(world, -1) == (ErrorCode.NONE, 13)
    assert log.log_start_known


def test_at_a_lost_log_end_nothing_is_appended_and_nobody_is_told_to_reset(world: World) -> None:
    partition = world.replicas.require("t", 0)
    assert fetched(world, 13) == ErrorCode.NONE
    assert fetched(world, 14) == ErrorCode.OFFSET_OUT_OF_RANGE
    epoch = partition.leader_epoch
    assert epoch_end(world, epoch) == ErrorCode.NONE
    partition.take_report(lost(Loss.LOG_END))
    assert epoch_end(world, epoch) == ErrorCode.KAFKA_STORAGE_ERROR, "it would see a truncation"
    assert listed(world, -1)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(world, 13) == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(world, 14) == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(world, 12) == ErrorCode.NONE, "what is here is served"
    with pytest.raises(KafkaStorageError):
        partition.append(batch(b"again"), now_ms=NOW_MS)
    assert partition.log.log_end_offset == 13
    partition.take_report(SOUND)
    partition.append(batch(b"continues"), now_ms=NOW_MS)


def test_a_leader_epoch_below_the_chain_of_a_tiered_log_changes_nothing(world: World) -> None:
    world.change("t", leader_epoch=7)
    world.append("t", b"13")
    log, partition = world.log("t"), world.replicas.require("t", 0)
    chain = log.epochs.entries()
    partition.become_leader(leader_epoch=3, partition_epoch=9, replicas=[1], isr=[1])
    assert log.epochs.entries() == chain
    with pytest.raises(KafkaStorageError):
        partition.append(batch(b"14"), now_ms=NOW_MS)
    partition.become_leader(leader_epoch=8, partition_epoch=10, replicas=[1], isr=[1])
    partition.append(batch(b"14"), now_ms=NOW_MS)
    assert log.epochs.entries() == [*chain, (8, 14)]
