"""Splits of a generated bucket: the rows of the log, however they are cut and grouped."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.columns import DEFAULT_COLUMNS, TYPES, schema_of
from pipeline.errors import OptionError
from pipeline.read.groups import ReadLimits
from pipeline.read.split import read_split
from pipeline.store import close_stores
from pipeline.values import Isolation, RemotePiece, Source, Split
from tests.support.lake.bucket import Bucket
from tests.support.lake.partition import LakePartition
from tests.support.lake.rows import Row, rows_of_arrow
from tests.support.stores.interrupted_store import Interruptions, interrupt


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with Bucket(tmp_path / "bucket") as made:
        yield made
    close_stores()


@pytest.fixture
def orders(bucket: Bucket) -> LakePartition:
    """Two segments of 160 batches of every codec."""
    made = bucket.partition("orders")
    for codec in range(5):
        made.batches(20, 3, codec=codec)
    made.append("x" * 9_000, None, (1, None, b"\xff", [("a", None), ("a", b"1")]))
    return made.roll().batches(59, 2).roll().copy()


def source_of(bucket: Bucket, *, is_strict: bool = True) -> Source:
    return Source(bucket.address, None, "", Isolation.READ_UNCOMMITTED, is_strict)


def whole(bucket: Bucket) -> Split:
    pieces = tuple(
        RemotePiece(one, one.start_offset, one.end_offset, 0, one.segment_size_bytes)
        for one in bucket.segments()
    )
    return Split(bucket.partitions[0].id.topic_partition, pieces, 1)


def rows(split: Split, source: Source, group_bytes: int = 32 << 20) -> list[Row]:
    limits = ReadLimits(group_bytes=group_bytes, call_bytes=1_000)
    return list(rows_of_arrow(read_split(split, source, tuple(TYPES), limits=limits)))


def test_whole_segments_give_the_rows_of_the_log(bucket: Bucket, orders: LakePartition) -> None:
    assert rows(whole(bucket), source_of(bucket)) == orders.rows()


@pytest.mark.parametrize("group_bytes", [1, 100, 1_000, 20_000])
def test_a_batch_may_be_larger_than_a_group(
    bucket: Bucket, orders: LakePartition, group_bytes: int
) -> None:
    assert rows(whole(bucket), source_of(bucket), group_bytes) == orders.rows()


@pytest.mark.parametrize("piece_bytes", [700, 1_333, 5_000])
def test_pieces_cut_anywhere_give_each_row_once(
    bucket: Bucket, orders: LakePartition, piece_bytes: int
) -> None:
    found: list[Row] = []
    for one in bucket.segments():
        for at in range(0, one.segment_size_bytes, piece_bytes):
            piece = RemotePiece(one, 17, 400, at, at + piece_bytes)
            split = Split(orders.id.topic_partition, (piece,), 1)
            found += rows(split, source_of(bucket), 2_000)
    assert found == [row for row in orders.rows() if 17 <= row.offset <= 400]


def test_only_the_bytes_that_the_offsets_need_are_asked_for(
    bucket: Bucket, orders: LakePartition
) -> None:
    how = Interruptions()
    source = Source(interrupt(bucket.address, how), None, "", Isolation.READ_UNCOMMITTED, True)
    (one, _) = bucket.segments()
    size = one.segment_size_bytes
    piece = RemotePiece(one, 150, 155, 1, size)  # byte 1: the index is asked for
    split = Split(orders.id.topic_partition, (piece,), 1)
    assert [row.offset for row in rows(split, source)] == [*range(150, 156)]
    ((begin, last),) = how.fetches
    assert last is not None
    assert begin > 0
    assert last - begin < size // 10
    assert how.indexes == 1


def test_columns_come_as_they_were_named(bucket: Bucket, orders: LakePartition) -> None:
    names = ("offset", "value")
    batches = list(read_split(whole(bucket), source_of(bucket), names))
    assert {batch.schema for batch in batches} == {schema_of(names)}
    assert [o for b in batches for o in b.column(0).to_pylist()] == [
        row.offset for row in orders.rows()
    ]
    with pytest.raises(OptionError, match="no column 'colour'"):
        next(read_split(whole(bucket), source_of(bucket), ("colour",)))


def test_batches_stay_right_when_the_buffers_are_used_again(
    bucket: Bucket, orders: LakePartition
) -> None:
    limits = ReadLimits(group_bytes=500)
    kept = list(read_split(whole(bucket), source_of(bucket), tuple(TYPES), limits=limits))
    for batch in kept:
        batch.validate(full=True)
    assert list(rows_of_arrow(kept)) == orders.rows()


def test_closing_early_ends_the_thread(bucket: Bucket, orders: LakePartition) -> None:
    del orders
    before = threading.active_count()
    limits = ReadLimits(group_bytes=500)
    batches = read_split(whole(bucket), source_of(bucket), DEFAULT_COLUMNS, limits=limits)
    with closing(batches):
        assert isinstance(next(batches), pa.RecordBatch)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_split_without_pieces_has_no_rows(bucket: Bucket, orders: LakePartition) -> None:
    assert rows(Split(orders.id.topic_partition, (), 0), source_of(bucket)) == []
