"""Pieces of a segment: where they are cut, held against a walk over all batches."""

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.files.offset_index import pack_entry
from kafka_protocol.types import EpochEntry, TopicIdPartition
from pipeline.read.byte_range import cut, is_sound, needs_index, range_by_index
from pipeline.values import RemotePiece
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata

BASE = 1_000


class Batch(NamedTuple):
    position: int
    size: int
    first: int
    last: int


def segment(batches: list[Batch]) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(TopicIdPartition(b"t" * 16, 0, "orders"), b"s" * 16),
        start_offset=BASE,
        end_offset=batches[-1].last,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=batches[-1].position + batches[-1].size,
        leader_epochs=(EpochEntry(0, BASE),),
    )


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Batch], bytes]:
    """Batches with gaps between offsets, and an index of some of them."""
    position, offset = 0, BASE
    batches, index = [], b""
    for number in range(draw(st.integers(1, 12))):
        first = offset + draw(st.integers(0, 3))
        last = first + draw(st.integers(0, 5))
        size = draw(st.integers(61, 90))
        if number and draw(st.booleans()):
            index += pack_entry(last - BASE, position)
        batches.append(Batch(position, size, first, last))
        position, offset = position + size, last + 1
    return batches, index


@given(logs(), st.lists(st.integers(0, 1_200), max_size=5))
def test_pieces_with_touching_bytes_share_no_batch_and_leave_none_out(
    log: tuple[list[Batch], bytes], cuts: list[int]
) -> None:
    batches, index = log
    whole = segment(batches)
    edges = [0, *sorted(cuts), whole.segment_size_bytes]
    read = []
    for begin, end in pairwise(edges):
        span = range_by_index(RemotePiece(whole, BASE, whole.end_offset, begin, end), index)
        read += [batch for batch in batches if span.begin <= batch.position < span.end]
        assert {span.begin, span.end} <= {b.position for b in batches} | {whole.segment_size_bytes}
    assert read == batches


@given(logs(), st.integers(BASE, BASE + 60), st.integers(0, 60))
def test_offsets_inside_a_segment_leave_out_what_they_do_not_need(
    log: tuple[list[Batch], bytes], first: int, more: int
) -> None:
    batches, index = log
    whole = segment(batches)
    size = whole.segment_size_bytes
    span = range_by_index(RemotePiece(whole, first, first + more, 0, size), index)
    wanted = [batch for batch in batches if batch.last >= first and batch.first <= first + more]
    assert all(span.begin <= batch.position < span.end for batch in wanted)
    entries = [batch for batch in batches[1:] if cut(index, size, batch.position) == batch.position]
    if index and len(entries) == len(batches) - 1:  # every batch has one: at most three too many
        read = [batch for batch in batches if span.begin <= batch.position < span.end]
        assert len(read) <= len(wanted) + 3


def test_an_index_is_asked_for_only_where_it_is_needed() -> None:
    small = segment([Batch(0, 100, BASE, BASE + 9)])
    assert not needs_index(RemotePiece(small, 0, 1 << 40, 0, 1 << 40))
    assert not needs_index(RemotePiece(small, BASE + 3, BASE + 4, 0, 100))
    assert needs_index(RemotePiece(small, BASE, BASE + 9, 0, 99))
    assert needs_index(RemotePiece(small, BASE, BASE + 9, 1, 100))
    large = segment([Batch(0, 5 << 20, BASE, BASE + 9)])
    assert not needs_index(RemotePiece(large, BASE, BASE + 9, 0, 5 << 20))
    assert needs_index(RemotePiece(large, BASE + 1, BASE + 9, 0, 5 << 20))
    assert needs_index(RemotePiece(large, BASE, BASE + 8, 0, 5 << 20))


def test_an_index_of_another_segment_is_not_sound() -> None:
    whole = RemotePiece(segment([Batch(0, 100, BASE, BASE + 9)]), BASE, BASE + 9, 0, 100)
    assert is_sound(b"", whole)
    assert is_sound(pack_entry(9, 99), whole)
    assert not is_sound(pack_entry(10, 99), whole)  # an offset behind the segment
    assert not is_sound(pack_entry(9, 100), whole)  # a position behind it
    assert not is_sound(pack_entry(9, 0), whole)
    assert not is_sound(pack_entry(5, 70) + pack_entry(5, 80), whole)
    assert not is_sound(pack_entry(5, 70)[:-1], whole)
