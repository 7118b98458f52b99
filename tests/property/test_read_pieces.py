"""However a segment is cut, grouped and interrupted: each row once, in order."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns import TYPES
from pipeline.read.groups import ReadLimits
from pipeline.read.split import read_split
from pipeline.store import close_stores
from pipeline.values import Isolation, RemotePiece, Source, Split
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.lake.bucket import Bucket
from tests.support.lake.rows import Row, rows_of_arrow
from tests.support.stores.interrupted_store import Interruptions, interrupt


@dataclass(frozen=True)
class World:
    """One segment with batches of all sizes and codecs, and how its store is interrupted."""

    bucket: Bucket
    segment: RemoteLogSegmentMetadata
    rows: list[Row]
    source: Source
    how: Interruptions


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Bucket(tmp_path_factory.mktemp("pieces") / "bucket") as bucket:
        orders = bucket.partition("orders")
        for number in range(60):
            size = (number * 7) % 13
            orders.append(*["v" * (size * size * 9)] * (1 + size), codec=number % 5)
        orders.thinned(1, 4, size=9).gap(20).append("end").roll().copy()
        how = Interruptions()
        address = interrupt(bucket.address, how)
        source = Source(address, None, "", Isolation.READ_UNCOMMITTED, True)
        (one,) = bucket.segments()
        yield World(bucket, one, orders.rows(), source, how)
    close_stores()


@given(st.data())
def test_pieces_of_any_kind_give_each_row_once(world: World, data: st.DataObject) -> None:
    size, end = world.segment.segment_size_bytes, world.segment.end_offset
    cuts = data.draw(st.lists(st.integers(1, size - 1), max_size=4), "cuts")
    edges = [0, *sorted(cuts), size + data.draw(st.integers(0, 5), "beyond")]
    first = data.draw(st.integers(0, end), "first")
    last = data.draw(st.integers(first, end), "last")
    limits = ReadLimits(
        group_bytes=data.draw(st.sampled_from([1, 100, 3_000, 1 << 20]), "group"),
        call_bytes=data.draw(st.sampled_from([10, 1_000, 1 << 20]), "call"),
    )
    world.how.break_after = data.draw(st.sampled_from([None, 400, 2_000]), "break after")
    pieces = tuple(RemotePiece(world.segment, first, last, *span) for span in pairwise(edges))
    split = Split(world.bucket.partitions[0].id.topic_partition, pieces, 1)
    found = list(rows_of_arrow(read_split(split, world.source, tuple(TYPES), limits=limits)))
    assert found == [row for row in world.rows if first <= row.offset <= last]
