"""The edges of pieces, splits and facts: where a range, a transaction or a time begins and ends."""

import pickle
from dataclasses import replace

import pytest

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.types import EpochEntry, TopicIdPartition
from pipeline.errors import DataLossError
from pipeline.plan.live import LiveIndex, LiveRun
from pipeline.plan.pieces import Found, Tiers, pieces_of
from pipeline.plan.planning import Known, make_plan
from pipeline.plan.splits import AbortedSweep, bytes_of_tail
from pipeline.values import OffsetRange, Piece, Plan, RemotePiece, Split, SplitLimits, TailPiece
from rlmm.lifecycle import SegmentEntry
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

HOME = TopicIdPartition(b"o" * 16, 0, "orders")
AT = HOME.topic_partition
RECORD_BYTES = 100


def segment(
    first: int, last: int, *, newest_ms: int = 0, epochs: tuple[EpochEntry, ...] = ()
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(HOME, (first * 1_000 + last).to_bytes(16, "big")),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=newest_ms,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=(last - first + 1) * RECORD_BYTES,
        leader_epochs=epochs or (EpochEntry(0, first),),
        state=SegmentState.COPY_SEGMENT_FINISHED,
    )


def run(first: int, last: int, newest_ms: int = 0) -> LiveRun:
    return LiveRun(first, last, segment(first, last, newest_ms=newest_ms))


def shown(found: Found) -> list[tuple[str, int, int]]:
    return [
        ("remote" if isinstance(one, RemotePiece) else "tail", one.first, one.last)
        for one in found.pieces
    ]


def tails(split: Split) -> list[TailPiece]:
    return [one for one in split.pieces if isinstance(one, TailPiece)]


def planned(
    *runs: LiveRun,
    end: int,
    wanted: OffsetRange | None = None,
    limits: SplitLimits | None = None,
    strict: bool = True,
    log_start: int = 0,
) -> Plan:
    known = Known(Tiers(HOME, runs, log_start, None), end, (), len(runs))
    ranges = {AT: wanted or OffsetRange(0, end)}
    return make_plan(
        {AT: known}, ranges, limits or SplitLimits(), fail_on_data_loss=strict, warnings=("said",)
    )


def pieces(plan: Plan) -> list[Piece]:
    return [piece for split in plan.splits for piece in split.pieces]


def test_a_stretch_with_an_open_transaction_is_read_from_the_brokers() -> None:
    runs = [run(0, 9), run(10, 19), run(30, 39)]
    tiers = Tiers(HOME, runs, 0, 25, {20: 12, 40: 40})
    found = pieces_of(tiers, OffsetRange(0, 45))
    assert shown(found) == [
        ("remote", 0, 9),
        ("remote", 10, 11),
        ("tail", 12, 19),
        ("tail", 25, 29),
        ("remote", 30, 39),
        ("tail", 40, 44),
    ]
    assert found.lost == [OffsetRange(20, 25)]


@pytest.mark.parametrize(("newest_ms", "is_kept"), [(99, False), (100, True), (101, True)])
def test_a_segment_whose_newest_record_is_of_that_time_is_read(
    newest_ms: int, is_kept: bool
) -> None:
    plan = planned(run(0, 9, newest_ms), end=10, limits=SplitLimits(timestamp_from_ms=100))
    assert len(pieces(plan)) == is_kept


def test_a_segment_of_unknown_time_is_read() -> None:
    plan = planned(run(0, 9, -1), end=10, limits=SplitLimits(timestamp_from_ms=100))
    assert len(pieces(plan)) == 1


def test_a_transaction_that_only_touches_a_piece_is_known_to_it() -> None:
    """The first of its offsets is the piece's last one, or its marker the piece's first."""
    before, begins, ends, after = (
        AbortedTransaction(1, 0, 9, 10),
        AbortedTransaction(2, 19, 25, 26),
        AbortedTransaction(3, 5, 10, 11),
        AbortedTransaction(4, 20, 21, 22),
    )
    piece = RemotePiece(segment(10, 19), 10, 19, 0, 1_000)
    found = AbortedSweep([after, ends, begins, before]).given_to(piece)
    assert isinstance(found, RemotePiece)
    assert list(found.aborted) == [ends[:3], begins[:3]]


def test_a_hint_of_few_partitions_makes_no_split_larger() -> None:
    runs = [run(0, 9), run(10, 19), run(20, 29), run(30, 39)]
    plan = planned(*runs, end=40, limits=SplitLimits(target_bytes=1_000, splits_min=2))
    assert [split.bytes_estimate for split in plan.splits] == [1_000] * 4
    more = planned(*runs, end=40, limits=SplitLimits(target_bytes=10_000, splits_min=2))
    assert [split.bytes_estimate for split in more.splits] == [2_000] * 2


def test_a_split_spans_no_more_offsets_than_allowed_and_no_fewer() -> None:
    runs = [run(0, 9), run(10, 19), run(20, 29)]
    plan = planned(*runs, end=30, limits=SplitLimits(offsets_max=20))
    spans = [(split.pieces[0].first, split.pieces[-1].last) for split in plan.splits]
    assert spans == [(0, 19), (20, 29)]
    plan = planned(*runs, end=30, limits=SplitLimits(offsets_max=19))
    assert len(plan.splits) == 3


def test_a_split_is_not_much_above_its_target() -> None:
    runs = [run(0, 9), run(10, 12), run(13, 15)]
    plan = planned(*runs, end=16, limits=SplitLimits(target_bytes=1_100))
    assert [split.bytes_estimate for split in plan.splits] == [1_300, 300]


def test_part_of_a_segment_counts_by_its_offsets() -> None:
    plan = planned(run(0, 99), end=100, wanted=OffsetRange(90, 100))
    assert [split.bytes_estimate for split in plan.splits] == [1_000]
    assert plan.facts.bytes_read == 1_000


def test_the_tails_records_are_taken_to_be_as_large_as_the_remote_ones() -> None:
    known = Known(Tiers(HOME, [run(0, 9)], 0, 10), 30, (), 1)
    plan = make_plan({AT: known}, {AT: OffsetRange(0, 30)}, SplitLimits(), fail_on_data_loss=True)
    assert [type(piece) for piece in pieces(plan)] == [RemotePiece, TailPiece]
    assert [split.bytes_estimate for split in plan.splits] == [30 * RECORD_BYTES]
    assert plan.facts.tail_offsets == 20


def test_segments_that_are_not_asked_for_count_as_skipped() -> None:
    plan = planned(run(0, 9), run(10, 19), run(20, 29), end=30, wanted=OffsetRange(12, 15))
    facts = plan.facts
    assert (facts.segments_known, facts.segments_read, facts.segments_skipped) == (3, 1, 2)


def test_what_is_lost_is_counted_and_named_after_the_other_warnings() -> None:
    plan = planned(run(5, 9), end=10, wanted=OffsetRange(2, 13), strict=False, log_start=5)
    assert plan.facts.lost_offsets == 3 + 3
    assert plan.facts.warnings == (
        "said",
        "orders-0: offsets 2 to 4 are lost",
        "orders-0: offsets 10 to 12 are lost",
    )


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            OffsetRange(4, 6),
            r"orders-0: offsets 4 to 4 are below the log start; the log starts at 5 and",
        ),
        (OffsetRange(7, 11), "offsets 10 to 10 are at or above the log's end"),
        (OffsetRange(12, 14), "offsets 12 to 13 are at or above the log's end"),
        (OffsetRange(4, 11), r"offsets 4 to 4 are below .* \(and 1 more\)"),
    ],
)
def test_one_lost_offset_is_an_error_that_names_it(wanted: OffsetRange, said: str) -> None:
    with pytest.raises(DataLossError, match=said):
        planned(run(5, 9), end=10, wanted=wanted, log_start=5)


def settled(*segments: RemoteLogSegmentMetadata, chain: list[EpochEntry]) -> LiveIndex:
    index = LiveIndex()
    for order, one in enumerate(segments):
        index.put(one.id.id, SegmentEntry(one, 0, finished_order=order))
    index.settle(chain)
    return index


def test_a_segment_that_serves_two_runs_counts_once() -> None:
    chain = [EpochEntry(0, 0)]
    index = settled(segment(5, 6), segment(0, 9), chain=chain)
    assert [(one.first, one.last) for one in index.runs] == [(0, 4), (5, 6), (7, 9)]
    assert index.count_from(0) == 2


def test_all_leader_epochs_of_a_segment_are_asked_for() -> None:
    epochs = (EpochEntry(1, 0), EpochEntry(3, 4))
    index = settled(segment(0, 9, epochs=epochs), chain=list(epochs))
    assert index.epochs() == {1, 3}


def test_the_cuts_of_a_segment_with_many_aborted_transactions_stay_small() -> None:
    """Each must know all: none knows its offsets. It takes a few bytes a transaction."""
    count = 10_000
    aborted = [
        AbortedTransaction(1_000 + n % 300, 9 * n, 9 * n + 8, 9 * n + 9) for n in range(count)
    ]
    known = Known(Tiers(HOME, [run(0, 9 * count)], 0, None), 9 * count + 1, aborted, 1)
    size = known.tiers.runs[0].segment.segment_size_bytes
    plan = make_plan(
        {AT: known},
        {AT: OffsetRange(0, 9 * count + 1)},
        SplitLimits(target_bytes=-(-size // 8)),
        fail_on_data_loss=True,
    )
    assert len(plan.splits) == 8
    for split in plan.splits:
        (piece,) = split.pieces
        assert isinstance(piece, RemotePiece)
        assert len(piece.aborted) == count
        assert len(pickle.dumps(split)) < 6 * count
    assert len({id(one.pieces[0].aborted) for one in plan.splits}) == 1  # type: ignore[union-attr]


def test_the_estimate_left_for_the_tail_is_split_by_offsets() -> None:
    remote = RemotePiece(segment(0, 9), 0, 9, 0, 1_000)
    one = Split(AT, (remote, TailPiece(HOME, 10, 19)), 5_000)
    two = Split(AT, (remote, TailPiece(HOME, 10, 14), TailPiece(HOME, 20, 34)), 5_000)
    found = [[bytes_of_tail(of, part) for part in tails(of)] for of in (one, two)]
    assert found == [[4_000], [1_000, 3_000]]
    assert bytes_of_tail(replace(one, bytes_estimate=900), tails(one)[0]) == 0


def test_the_brokers_part_names_the_leader() -> None:
    leader = ("b1", 9092)
    tiers = Tiers(HOME, [run(0, 9), run(12, 19)], 0, 10, {20: 15}, leader)
    found = pieces_of(tiers, OffsetRange(5, 40)).pieces
    parts = [(one.first, one.last, one.leader) for one in found if isinstance(one, TailPiece)]
    assert parts == [(10, 11, leader), (15, 39, leader)]
