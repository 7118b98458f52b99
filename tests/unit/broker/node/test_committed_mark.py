"""A committed batch beside the partitions: how it is kept, and what a leader's log says of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.node.committed_mark import (
    Comparison,
    MarkKeeper,
    compare,
    dump_mark,
    parse_mark,
    read_marks,
)
from kafka_protocol.errors import CorruptFileError, ErrorCode
from kafka_protocol.records.batch import read_header
from local_log.manager.log_dir import COMMITTED_METADATA
from metadata_topic.image.records import make
from metadata_topic.quorum.log.batches import data_batch
from metadata_topic.quorum.metadata_loader import CommittedBatch
from metadata_topic.raft.messages import EpochEnd, FetchResponse, SnapshotId, Standing
from runtime.disk import Disk

BATCH = CommittedBatch(4711, 3, 0x1A2B3C4D)
ANSWER = FetchResponse(ErrorCode.NONE, Standing(3))


def batch_of(*, base_offset: int = 10, epoch: int = 3, timestamp_ms: int = 5) -> bytes:
    records = (make("NoOpRecord"),)
    return bytes(
        data_batch(records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)
    )


def noted(data: bytes) -> CommittedBatch:
    header = read_header(data, 0)
    return CommittedBatch(header.base_offset, header.partition_leader_epoch, header.crc)


def test_a_mark_is_read_as_it_was_written() -> None:
    assert parse_mark(dump_mark(BATCH)) == BATCH


@pytest.mark.parametrize("position", [0, 30, -5])
def test_a_changed_mark_is_refused(position: int) -> None:
    data = bytearray(dump_mark(BATCH))
    data[position] ^= 1
    with pytest.raises(CorruptFileError):
        parse_mark(bytes(data))


def test_a_batch_at_its_place_is_the_same_log() -> None:
    data = batch_of()
    assert compare(noted(data), ANSWER, data) is Comparison.SAME


def test_a_batch_of_the_same_epoch_and_offset_is_another() -> None:
    """Both logs begin in epoch 1: only the content tells them apart."""
    assert compare(noted(batch_of()), ANSWER, batch_of(timestamp_ms=6)) is Comparison.OTHER


def test_the_same_content_elsewhere_is_another() -> None:
    mark = noted(batch_of())
    assert compare(mark, ANSWER, batch_of(base_offset=9)) is Comparison.OTHER
    assert compare(mark, ANSWER, batch_of(epoch=4)) is Comparison.OTHER


def test_a_log_that_ends_before_or_diverges_is_another() -> None:
    assert compare(BATCH, ANSWER, b"") is Comparison.OTHER
    diverging = replace(ANSWER, diverging=EpochEnd(1, 20))
    assert compare(BATCH, diverging, b"") is Comparison.OTHER


def test_a_log_that_begins_later_or_a_refusal_proves_nothing() -> None:
    trimmed = replace(ANSWER, snapshot_id=SnapshotId(9000, 3))
    assert compare(BATCH, trimmed, b"") is Comparison.TRIMMED
    assert compare(BATCH, replace(ANSWER, error=ErrorCode.FENCED_LEADER_EPOCH), b"") is None


def test_each_batch_that_directories_note_is_read_newest_first(tmp_path: Path) -> None:
    disk, older = Disk(), BATCH._replace(base_offset=3)
    paths = [tmp_path / name for name in ("old", "new", "too", "damaged", "none", "gone")]
    for path, data in zip(
        paths, (dump_mark(older), *[dump_mark(BATCH)] * 2, b"damaged", None), strict=False
    ):
        path.mkdir()
        if data is not None:
            (path / COMMITTED_METADATA).write_bytes(data)
    assert list(read_marks(disk, paths).items()) == [(BATCH, paths[1:3]), (older, paths[:1])]
    assert read_marks(disk, paths[3:]) == {}


def test_a_disk_that_fails_leaves_the_others_with_the_mark(tmp_path: Path) -> None:
    works = tmp_path / "works"
    works.mkdir()
    found: list[CommittedBatch | None] = [None]
    keeper = MarkKeeper(Disk(), lambda: found[0], lambda: [tmp_path / "fails", works])
    keeper.keep()  # nothing is known to be committed yet
    found[0] = BATCH
    with pytest.raises(OSError, match="fails"):
        keeper.keep()
    assert read_marks(Disk(), [works]) == {BATCH: [works]}
    (tmp_path / "fails").mkdir()
    keeper.keep()
    assert BATCH in read_marks(Disk(), [tmp_path / "fails"])


def test_an_idle_broker_writes_nothing(tmp_path: Path) -> None:
    keeper = MarkKeeper(Disk(), lambda: BATCH, lambda: [tmp_path])
    keeper.keep()
    (tmp_path / COMMITTED_METADATA).unlink()
    keeper.keep()
    assert read_marks(Disk(), [tmp_path]) == {}
