"""Look-ups by (leader epoch, offset) against a twin that writes out every offset."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import EpochEntry
from rlmm.lifecycle import SegmentEntry
from rlmm.lineage import (
    Coverage,
    Placement,
    chain_spans,
    copied_through,
    ends_on,
    epoch_at,
    holds,
    is_covered,
    parts_on_chain,
    placement,
    remote_start,
    segment_spans,
    superseded,
)
from rlmm.partition_view import PartitionView
from rlmm.testing import segment
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState

LOG_END = 40
Pairs = set[tuple[int, int]]


@dataclass(frozen=True)
class World:
    """A leader's chain, and segments of it and of other lineages, by their FINISHED."""

    chain: list[EpochEntry]
    segments: list[RemoteLogSegmentMetadata]


@st.composite
def chains(draw: st.DrawFn, starts: list[int]) -> list[EpochEntry]:
    """A lineage: epochs that follow each other; each begins at the one place where it was won."""
    chain: list[EpochEntry] = []
    for epoch, start in enumerate(starts):
        if (not chain or start >= chain[-1].start_offset) and draw(st.booleans()):
            chain.append(EpochEntry(epoch, start))
    return chain or [EpochEntry(0, starts[0])]


def cut(chain: list[EpochEntry], first: int, last: int) -> tuple[EpochEntry, ...]:
    ends = [entry.start_offset for entry in chain[1:]] + [last + 1]
    return tuple(
        EpochEntry(entry.epoch, max(first, entry.start_offset))
        for entry, end in zip(chain, ends, strict=True)
        if entry.start_offset <= last and end > first
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    starts = draw(st.lists(st.integers(0, LOG_END - 1), min_size=1, max_size=6))
    lineages = draw(st.lists(chains(starts), min_size=1, max_size=3))
    segments = []
    for number in range(draw(st.integers(0, 9))):
        chain = draw(st.sampled_from(lineages))
        first = draw(st.integers(chain[0].start_offset, LOG_END - 1))
        last = draw(st.integers(first, min(LOG_END - 1, first + 12)))
        finished = replace(segment(number, first, last), state=SegmentState.COPY_SEGMENT_FINISHED)
        segments.append(replace(finished, leader_epochs=cut(chain, first, last)))
    return World(lineages[0], segments)


def pairs(of: RemoteLogSegmentMetadata) -> Pairs:
    """Every (epoch, offset) of a segment, one by one."""
    found = set()
    for offset in range(of.start_offset, of.end_offset + 1):
        began = [entry.epoch for entry in of.leader_epochs if entry.start_offset <= offset]
        if began:
            found.add((began[-1], offset))
    return found


def chain_pairs(chain: list[EpochEntry], first: int, end: int) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for offset in range(first, end):
        began = [entry.epoch for entry in chain if entry.start_offset <= offset]
        found.append((began[-1], offset) if began else None)
    return found


def view_of(world: World, skip: int | None = None) -> PartitionView:
    return PartitionView(
        SegmentEntry(meta, started_seen_ms=0, finished_order=order)
        for order, meta in enumerate(world.segments)
        if order != skip
    )


@given(worlds())
def test_a_segment_is_found_exactly_where_it_holds_the_pair(world: World) -> None:
    view = view_of(world)
    for epoch in range(7):
        for offset in range(LOG_END + 1):
            holders = [meta for meta in world.segments if (epoch, offset) in pairs(meta)]
            assert view.segment_for(epoch, offset) == (holders[0] if holders else None)
            assert all(holds(meta, epoch, offset) for meta in holders)


@given(worlds())
def test_the_highest_offset_of_an_epoch(world: World) -> None:
    view = view_of(world)
    for epoch in range(7):
        offsets = [o for meta in world.segments for e, o in pairs(meta) if e == epoch]
        assert view.highest_offset_for_epoch(epoch) == max(offsets, default=None)


@given(worlds(), st.integers(0, LOG_END))
def test_the_next_segment(world: World, offset: int) -> None:
    view = view_of(world)
    for epoch in range(7):
        later = [
            (meta.start_offset, order)
            for order, meta in enumerate(world.segments)
            if meta.start_offset >= offset and any(e == epoch for e, _ in pairs(meta))
        ]
        found = view.next_segment(epoch, offset)
        assert found == (world.segments[min(later)[1]] if later else None)


@given(worlds(), st.data())
def test_a_view_kept_up_to_date_equals_one_built_anew(world: World, data: st.DataObject) -> None:
    if not world.segments:
        return
    gone = data.draw(st.integers(0, len(world.segments) - 1))
    view = view_of(world)
    view.put(world.segments[gone].id.id, None)
    fresh = view_of(world, skip=gone)
    assert view.segments() == fresh.segments()
    for epoch in range(7):
        assert view.segments(epoch) == fresh.segments(epoch)
        assert view.highest_offset_for_epoch(epoch) == fresh.highest_offset_for_epoch(epoch)
        for offset in range(LOG_END):
            assert view.segment_for(epoch, offset) == fresh.segment_for(epoch, offset)


@given(worlds())
def test_only_finished_segments_are_served(world: World) -> None:
    for state in SegmentState:
        if state is SegmentState.COPY_SEGMENT_FINISHED:
            continue
        view = PartitionView(
            SegmentEntry(replace(meta, state=state), 0, order)
            for order, meta in enumerate(world.segments)
        )
        assert len(view.segments()) == len(world.segments)
        assert all(view.segment_for(e, o) is None for e in range(7) for o in range(LOG_END))


@given(worlds(), st.integers(0, LOG_END), st.integers(0, LOG_END))
def test_copied_through_is_the_end_of_the_run_from_the_log_start(
    world: World, log_start: int, log_end: int
) -> None:
    covered: Pairs = set().union(*map(pairs, world.segments))
    expected = None
    for pair in chain_pairs(world.chain, log_start, log_end):
        if pair not in covered:
            break
        expected = pair
    found = copied_through(Coverage(world.segments), world.chain, log_start, log_end)
    assert (found and (found.leader_epoch, found.last_offset)) == expected


@given(worlds(), st.integers(0, LOG_END - 1), st.integers(0, 12))
def test_a_range_is_covered_when_each_pair_of_the_chain_is(
    world: World, first: int, length: int
) -> None:
    last = min(LOG_END - 1, first + length)
    covered: Pairs = set().union(*map(pairs, world.segments))
    expected = all(pair in covered for pair in chain_pairs(world.chain, first, last + 1))
    assert is_covered(Coverage(world.segments), world.chain, first, last) == expected


@given(worlds(), st.integers(0, LOG_END))
def test_the_remote_start_is_the_first_pair_of_the_chain_that_is_remote(
    world: World, log_end: int
) -> None:
    covered: Pairs = set().union(*map(pairs, world.segments))
    on_chain = [pair[1] for pair in chain_pairs(world.chain, 0, log_end) if pair in covered]
    found = remote_start(Coverage(world.segments), world.chain, log_end)
    assert found == min(on_chain, default=None)


@given(worlds(), st.integers(0, LOG_END))
def test_placement_counts_the_pairs_on_the_chain(world: World, log_end: int) -> None:
    own = {pair for pair in chain_pairs(world.chain, 0, log_end) if pair}
    for meta in world.segments:
        shared = pairs(meta) & own
        expected = Placement.PARTLY
        if not shared:
            expected = Placement.OFF_CHAIN
        elif shared == pairs(meta):
            expected = Placement.ON_CHAIN
        assert placement(meta, world.chain, log_end) is expected
        parts = parts_on_chain(meta, world.chain, log_end)
        assert {(p.epoch, o) for p in parts for o in range(p.first, p.last + 1)} == shared


@given(worlds())
def test_spans_are_the_pairs(world: World) -> None:
    for meta in world.segments:
        spans = segment_spans(meta)
        written_out = {(s.epoch, o) for s in spans for o in range(s.first, s.last + 1)}
        assert written_out == pairs(meta)


@given(worlds())
def test_a_segment_is_given_up_when_earlier_ones_hold_all_of_it(world: World) -> None:
    expected = []
    for order, meta in enumerate(world.segments):
        earlier: Pairs = set().union(*map(pairs, world.segments[:order]))
        if pairs(meta) <= earlier:
            expected.append(meta)
    assert superseded(world.segments) == expected


@given(worlds())
def test_giving_up_overlaps_loses_no_pair(world: World) -> None:
    given_up = superseded(world.segments)
    kept = [meta for meta in world.segments if meta not in given_up]
    assert set().union(*map(pairs, kept)) == set().union(*map(pairs, world.segments))


def counted(world: World, log_end: int) -> list[RemoteLogSegmentMetadata]:
    own = {span.epoch: span for span in chain_spans(world.chain, log_end)}
    return [meta for meta in world.segments if ends_on(meta, own)]


@given(worlds(), st.integers(0, LOG_END))
def test_a_segment_counts_where_its_last_pair_is_on_the_chain(world: World, log_end: int) -> None:
    last = [meta for meta in world.segments if meta.end_offset < log_end]
    assert counted(world, log_end) == [
        meta
        for meta in last
        if max(pairs(meta), key=lambda it: it[1])
        in chain_pairs(world.chain, meta.end_offset, log_end)
    ]


@given(worlds(), st.integers(0, LOG_END))
def test_a_leader_behind_gives_up_no_more_than_one_that_knows_all(
    world: World, high_watermark: int
) -> None:
    """It would delete a copy that the other one relies on."""
    behind, whole = counted(world, high_watermark), counted(world, LOG_END)
    assert all(meta in superseded(whole) for meta in superseded(behind))


@given(worlds(), st.integers(0, LOG_END))
def test_the_epoch_of_an_offset(world: World, offset: int) -> None:
    (pair,) = chain_pairs(world.chain, offset, offset + 1)
    assert epoch_at(world.chain, offset) == (pair and pair[0])
