"""Stores that break, refuse and hang; objects that are missing, cut, flipped or another's."""

import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.columns import TYPES
from pipeline.errors import DamagedDataError, DataLossError, StoreUnreachableError
from pipeline.read.groups import ReadLimits
from pipeline.read.lost import LostOffsets
from pipeline.read.split import read_split
from pipeline.store import close_stores
from pipeline.values import Isolation, RemotePiece, Source, Split
from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.lake.bucket import Bucket
from tests.support.lake.rows import Row, rows_of_arrow
from tests.support.stores.interrupted_store import Interruptions, interrupt

QUICK = ReadLimits(group_bytes=4_000, retry_s=0.3, silence_s=30.0)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """One partition with three segments of 40 batches."""
    with Bucket(tmp_path / "bucket") as made:
        made.partition("orders").batches(40, 3).roll().batches(40, 3, codec=4).roll().batches(
            40, 3
        ).roll().copy()
        yield made
    close_stores()


def split_of(bucket: Bucket, *segments: RemoteLogSegmentMetadata) -> Split:
    pieces = tuple(
        RemotePiece(one, one.start_offset, one.end_offset, 0, one.segment_size_bytes)
        for one in segments or bucket.segments()
    )
    return Split(bucket.partitions[0].id.topic_partition, pieces, 1)


def read(
    bucket: Bucket,
    how: Interruptions | None = None,
    *,
    split: Split | None = None,
    limits: ReadLimits = QUICK,
    lost: LostOffsets | None = None,
) -> list[Row]:
    address = bucket.address if how is None else interrupt(bucket.address, how)
    source = Source(address, None, "", Isolation.READ_UNCOMMITTED, lost is None)
    batches = read_split(split or split_of(bucket), source, tuple(TYPES), limits=limits, lost=lost)
    return list(rows_of_arrow(batches))


def object_of(bucket: Bucket, number: int, suffix: str) -> Path:
    """A stored object of the segment with that place in the log."""
    found = sorted(Path(bucket.address.settings["dir"]).rglob(f"*{suffix}"))
    return found[number]


@pytest.mark.parametrize("break_after", [1, 61, 700, 5_000])
def test_a_stream_that_breaks_continues_at_its_byte(bucket: Bucket, break_after: int) -> None:
    how = Interruptions(break_after=break_after)
    small = split_of(bucket, bucket.segments()[0])
    if break_after > 1:
        small = split_of(bucket)
    else:
        (piece,) = small.pieces
        small = replace(small, pieces=(replace(piece, last=2, byte_to=700),))
    found = read(bucket, how, split=small)
    assert found == bucket.rows()[: len(found)]
    assert len(found) == (3 if break_after == 1 else 360)
    assert len(how.fetches) > 3


def test_what_may_pass_is_tried_again(bucket: Bucket) -> None:
    how = Interruptions(errors=[RetriableRemoteStorageError("503") for _ in range(3)])
    limits = replace(QUICK, retry_s=30.0)
    assert read(bucket, how, limits=limits) == bucket.rows()
    assert len(how.fetches) == 3 + 3


def test_what_does_not_pass_ends_at_the_deadline_in_one_line(bucket: Bucket) -> None:
    how = Interruptions(errors=[RetriableRemoteStorageError("503 slow down")] * 1_000)
    with pytest.raises(StoreUnreachableError, match="503 slow down") as refused:
        read(bucket, how)
    text = str(refused.value)
    assert bucket.address.settings["dir"] in text
    assert "\n" not in text
    assert len(how.fetches) > 1


def test_a_refusal_is_not_tried_again(bucket: Bucket) -> None:
    how = Interruptions(errors=[RemoteStorageError("get_object failed: AccessDenied (403)")])
    with pytest.raises(StoreUnreachableError, match="AccessDenied"):
        read(bucket, how)
    assert len(how.fetches) == 1


def test_a_store_that_hangs_ends_at_the_deadline(bucket: Bucket) -> None:
    released = threading.Event()
    try:
        with pytest.raises(StoreUnreachableError, match="the store hangs"):
            read(bucket, Interruptions(hang=released), limits=replace(QUICK, silence_s=0.2))
    finally:
        released.set()


def test_a_store_that_was_never_there_is_one_line(bucket: Bucket) -> None:
    shutil.rmtree(bucket.address.settings["dir"])
    with pytest.raises(StoreUnreachableError, match="no such directory here"):
        read(bucket)


def test_bytes_behind_the_end_are_not_taken(bucket: Bucket) -> None:
    with pytest.raises(DamagedDataError, match="gives bytes behind byte"):
        read(bucket, Interruptions(extra=b"more"))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flipped(at: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x40
        path.write_bytes(data)

    return flip


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [cut_short, emptied, flipped(0), flipped(8), flipped(11), flipped(20), flipped(100)],
    ids=["cut", "empty", "offset", "huge length", "length", "checksum", "record"],
)
def test_a_damaged_log_is_named_and_never_a_wrong_row(
    bucket: Bucket, damage: Callable[[Path], None]
) -> None:
    path = object_of(bucket, 1, ".log")
    damage(path)
    right, found = bucket.rows(), list[Row]()
    source = Source(bucket.address, None, "", Isolation.READ_UNCOMMITTED, True)
    batches = read_split(split_of(bucket), source, tuple(TYPES), limits=QUICK)
    with pytest.raises(DamagedDataError) as refused:
        found.extend(rows_of_arrow(batches))
    assert found == right[: len(found)]
    assert path.name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_log_of_another_segment_is_named(bucket: Bucket) -> None:
    third = bucket.segments()[2]
    shutil.copy(object_of(bucket, 0, ".log"), object_of(bucket, 2, ".log"))
    # whole segments are compared with their manifest; a part of one is not
    piece = RemotePiece(third, third.start_offset, third.end_offset, 0, 3_000)
    split = Split(bucket.partitions[0].id.topic_partition, (piece,), 1)
    with pytest.raises(DamagedDataError, match=r"offsets 0 to \d+ where 240 to 359 are allowed"):
        read(bucket, split=split)


def test_a_manifest_that_lies_is_named(bucket: Bucket) -> None:
    one = bucket.segments()[0]
    lying = replace(one, segment_size_bytes=one.segment_size_bytes + 5)
    with pytest.raises(DamagedDataError, match=r"\.log has \d+ bytes, not \d+"):
        read(bucket, split=split_of(bucket, lying))
    object_of(bucket, 0, ".manifest").write_text("{")
    close_stores()
    with pytest.raises(DamagedDataError, match="manifest"):
        read(bucket)


def test_segments_of_other_offsets_than_planned_are_named(bucket: Bucket) -> None:
    first, second, _ = bucket.segments()
    narrow = replace(first, end_offset=50)
    with pytest.raises(DamagedDataError, match="where 0 to 50 are allowed"):
        read(bucket, split=split_of(bucket, narrow, second))


def test_a_damaged_index_is_named(bucket: Bucket) -> None:
    one = bucket.segments()[0]
    piece = RemotePiece(one, 0, 50, 0, 1_000)
    split = Split(bucket.partitions[0].id.topic_partition, (piece,), 1)
    flipped(120)(object_of(bucket, 0, ".indexes"))
    with pytest.raises(DamagedDataError, match="indexes"):
        read(bucket, split=split)


def test_a_segment_deleted_after_the_plan_is_data_loss(bucket: Bucket) -> None:
    bucket.partitions[0].delete(1)
    with pytest.raises(DataLossError, match="offsets 120 to 239 cannot be read") as refused:
        read(bucket)
    assert "failOnDataLoss=false" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_lost_offsets_are_skipped_and_counted_where_that_is_allowed(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    right = bucket.rows()
    split = split_of(bucket)
    bucket.partitions[0].delete(1)
    lost = LostOffsets()
    with caplog.at_level(logging.WARNING, "pipeline.read.lost"):
        found = read(bucket, split=split, lost=lost)
    assert found == [row for row in right if not 120 <= row.offset <= 239]
    assert lost.count == 120
    assert "lost offsets: topic=orders partition=0 first=120 last=239 count=120" in caplog.text


def test_a_part_of_a_lost_segment_counts_by_its_bytes(bucket: Bucket) -> None:
    one = bucket.segments()[1]
    half = one.segment_size_bytes // 2
    piece = RemotePiece(one, one.start_offset, one.end_offset, half, 2 * half)
    bucket.partitions[0].delete(1)
    lost = LostOffsets()
    split = Split(bucket.partitions[0].id.topic_partition, (piece,), 1)
    assert read(bucket, split=split, lost=lost) == []
    assert 50 <= lost.count <= 70


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
def test_an_object_that_somebody_removed_is_data_loss_too(bucket: Bucket, suffix: str) -> None:
    one = bucket.segments()[2]
    piece = RemotePiece(one, one.start_offset, one.end_offset, 100, one.segment_size_bytes)
    split = Split(bucket.partitions[0].id.topic_partition, (piece,), 1)
    object_of(bucket, 2, suffix).unlink()
    with pytest.raises(DataLossError):
        read(bucket, split=split)
