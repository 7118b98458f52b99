"""Live runs and plans on random lineages, against a twin that looks at one offset after the other.

A history: leaders write, some are elected uncleanly and give up what others wrote, all copy
segments, some copies are deleted or never finished. The twin asks, of every offset of the last
leader's log, which finished segment holds it under the same leader epoch, the first one counts.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.types import EpochEntry, TopicIdPartition
from pipeline.plan.live import LiveIndex
from pipeline.plan.pieces import Tiers, pieces_of
from pipeline.plan.planning import Known, make_plan
from pipeline.values import OffsetRange, Piece, Plan, RemotePiece, SplitLimits, TailPiece
from rlmm.lifecycle import SegmentEntry
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

PARTITION = TopicIdPartition(bytes(16), 0, "orders")
AT = PARTITION.topic_partition
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


def chain_of(epochs: list[int]) -> list[EpochEntry]:
    """The chain of a log, given as the leader epoch of each offset."""
    found, at = [], 0
    for epoch, offsets in groupby(epochs):
        found.append(EpochEntry(epoch, at))
        at += len(list(offsets))
    return found


@dataclass
class History:
    """What happened: `epochs` is the leader's log, `entries` what was copied and is not deleted."""

    epochs: list[int] = field(default_factory=list)
    entries: dict[bytes, SegmentEntry] = field(default_factory=dict)
    copied: int = 0
    epoch: int = 0

    def copy(self, first: int, last: int, state: SegmentState) -> bytes:
        self.copied += 1
        segment_id = self.copied.to_bytes(16, "big")
        chain = [
            EpochEntry(epoch, max(start, first))
            for epoch, start in chain_of(self.epochs[: last + 1])
        ]
        own = [
            entry
            for number, entry in enumerate(chain)
            if number + 1 == len(chain) or chain[number + 1].start_offset > first
        ]
        metadata = RemoteLogSegmentMetadata(
            id=RemoteLogSegmentId(PARTITION, segment_id),
            start_offset=first,
            end_offset=last,
            max_timestamp_ms=1_000 * last,
            broker_id=1,
            event_timestamp_ms=self.copied,
            segment_size_bytes=(last - first + 1) * 100,
            leader_epochs=tuple(own),
            state=state,
        )
        order = self.copied if state is FINISHED else None
        self.entries[segment_id] = SegmentEntry(metadata, 0, finished_order=order)
        return segment_id

    def chain(self) -> list[EpochEntry]:
        """What the leader writes next is of its own epoch, also before it has written anything."""
        written = chain_of(self.epochs)
        if written and written[-1].epoch < self.epoch:
            written.append(EpochEntry(self.epoch, len(self.epochs)))
        return written

    def expected(self) -> list[bytes | None]:
        """The twin: of each offset the id of the segment that serves it."""
        found: list[bytes | None] = []
        for offset, epoch in enumerate(self.epochs):
            holding = [
                (entry.finished_order, entry.metadata.id.id)
                for entry in self.entries.values()
                if entry.metadata.state is FINISHED
                and entry.metadata.start_offset <= offset <= entry.metadata.end_offset
                and epoch_of(entry.metadata, offset) == epoch
            ]
            found.append(min(holding)[1] if holding else None)
        return found


def epoch_of(metadata: RemoteLogSegmentMetadata, offset: int) -> int:
    return max(
        (entry for entry in metadata.leader_epochs if entry.start_offset <= offset),
        key=lambda entry: entry.start_offset,
    ).epoch


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, LiveIndex]:
    """A history, and an index that was kept while it happened."""
    history, index = History(), LiveIndex()
    for _ in range(draw(st.integers(1, 25))):
        step = draw(st.sampled_from(["write", "write", "elect", "copy", "copy", "delete", "look"]))
        if step == "write":
            history.epochs += [history.epoch] * draw(st.integers(1, 12))
        elif step == "elect":
            history.epoch += draw(st.integers(1, 2))
            if draw(st.booleans()):  # unclean
                del history.epochs[draw(st.integers(0, len(history.epochs))) :]
        elif step == "copy" and history.epochs:
            first = draw(st.integers(0, len(history.epochs) - 1))
            last = draw(st.integers(first, min(len(history.epochs) - 1, first + 15)))
            state = draw(st.sampled_from([FINISHED, FINISHED, SegmentState.COPY_SEGMENT_STARTED]))
            segment_id = history.copy(first, last, state)
            index.put(segment_id, history.entries[segment_id])
        elif step == "delete" and history.entries:
            segment_id = draw(st.sampled_from(sorted(history.entries)))
            del history.entries[segment_id]
            index.put(segment_id, None)
        elif step == "look":
            index.settle(history.chain())
    index.settle(history.chain())
    return history, index


def served(index: LiveIndex, end: int) -> list[bytes | None]:
    found: list[bytes | None] = [None] * end
    at = -1
    for run in index.runs:
        assert run.first > at
        assert run.last >= run.first
        at = run.last
        for offset in range(run.first, min(run.last + 1, end)):
            found[offset] = run.segment.id.id
    return found


@given(histories())
def test_each_offset_is_served_by_the_segment_that_was_finished_first(
    made: tuple[History, LiveIndex],
) -> None:
    history, index = made
    assert served(index, len(history.epochs)) == history.expected()


@given(histories())
def test_an_index_that_was_kept_is_as_one_that_is_new(made: tuple[History, LiveIndex]) -> None:
    history, index = made
    new = LiveIndex()
    for segment_id, entry in history.entries.items():
        new.put(segment_id, entry)
    new.settle(history.chain())
    assert list(new.runs) == list(index.runs)


@given(histories(), st.data())
def test_pieces_hold_each_offset_once_and_say_what_is_lost(
    made: tuple[History, LiveIndex], data: st.DataObject
) -> None:
    history, index = made
    end = len(history.epochs)
    log_start = data.draw(st.integers(0, end))
    local_start = data.draw(st.none() | st.integers(log_start, end))
    start = data.draw(st.integers(0, end))
    wanted = OffsetRange(start, data.draw(st.integers(start, end)))
    undecided = {
        run.last + 1: data.draw(st.integers(0, run.last + 1))
        for run in index.runs
        if data.draw(st.booleans())
    }
    runs = list(index.runs_from(max(start, log_start)))
    found = pieces_of(Tiers(PARTITION, runs, log_start, local_start, undecided), wanted)
    holder: dict[int, object] = {}
    for piece in found.pieces:
        for offset in range(piece.first, piece.last + 1):
            assert offset not in holder
            holder[offset] = piece
    for lost in found.lost:
        for offset in range(lost.start, lost.end):
            assert offset not in holder
            holder[offset] = None
    assert sorted(holder) == list(range(wanted.start, wanted.end))
    serving = history.expected()
    for offset, piece in holder.items():
        if piece is None:
            # Without brokers nobody can say what of an open transaction is aborted.
            is_remote = serving[offset] is not None and (
                local_start is not None or offset < open_from(serving, offset, undecided)
            )
            is_local = local_start is not None and offset >= local_start
            assert offset < log_start or not (is_remote or is_local)
        elif isinstance(piece, RemotePiece):
            assert serving[offset] == piece.segment.id.id
            assert offset >= log_start
            assert offset < open_from(serving, offset, undecided)
        else:
            remote = serving[offset] is not None
            assert offset >= log_start
            assert remote or (local_start is not None and offset >= local_start)
            assert not remote or offset >= open_from(serving, offset, undecided)


def open_from(serving: list[bytes | None], offset: int, undecided: dict[int, int]) -> int:
    end = offset
    while end < len(serving) and serving[end] is not None:
        end += 1
    return undecided.get(end, len(serving))


LIMITS = st.builds(
    SplitLimits,
    target_bytes=st.integers(1, 3_000),
    splits_min=st.none() | st.integers(1, 20),
    offsets_max=st.none() | st.integers(1, 30),
)


def rows_of(piece: Piece, batches: dict[bytes, list[int]]) -> list[int]:
    """The offsets that a reader finds: each batch has an offset index entry, as `values` says."""
    if isinstance(piece, TailPiece):
        return list(range(piece.first, piece.last + 1))
    segment = piece.segment
    size = segment.segment_size_bytes
    starts = batches[segment.id.id]  # the first offset of each batch; a record has 100 bytes
    positions = [(start - segment.start_offset) * 100 for start in starts]

    def cut(at: int) -> int:
        below = bisect_right(positions, at)
        return size if at >= size else positions[below - 1] if below else 0

    found = []
    for number, start in enumerate(starts):
        if cut(piece.byte_from) <= positions[number] < cut(piece.byte_to):
            following = (starts[number + 1 :] or [segment.end_offset + 1])[0]
            found += [at for at in range(start, following) if piece.first <= at <= piece.last]
    return found


def planned(index: LiveIndex, start: int, end: int, limits: SplitLimits) -> Plan:
    tiers = Tiers(PARTITION, list(index.runs), 0, 0)
    known = {AT: Known(tiers, end, (), index.count_from(0))}
    return make_plan(known, {AT: OffsetRange(start, end)}, limits, fail_on_data_loss=True)


@given(histories(), LIMITS, st.data())
def test_splits_read_each_offset_once_in_order_whatever_the_limits(
    made: tuple[History, LiveIndex], limits: SplitLimits, data: st.DataObject
) -> None:
    history, index = made
    end = len(history.epochs)
    start = data.draw(st.integers(0, end))
    batches = {}
    for segment_id, entry in history.entries.items():
        meta = entry.metadata
        inner = st.sets(st.integers(meta.start_offset, meta.end_offset), max_size=5)
        batches[segment_id] = sorted({meta.start_offset, *data.draw(inner)})
    plan = planned(index, start, end, limits)
    rows = [row for split in plan.splits for one in split.pieces for row in rows_of(one, batches)]
    assert rows == list(range(start, end))
    for split in plan.splits:
        assert split.pieces
        assert split.bytes_estimate >= 0
        span = split.pieces[-1].last - split.pieces[0].first + 1
        assert limits.offsets_max is None or span <= limits.offsets_max


@given(histories(), st.integers(0, 200_000))
def test_only_segments_that_are_wholly_older_are_skipped(
    made: tuple[History, LiveIndex], from_ms: int
) -> None:
    history, index = made
    end = len(history.epochs)
    whole = planned(index, 0, end, SplitLimits())
    pruned = planned(index, 0, end, SplitLimits(timestamp_from_ms=from_ms))
    all_ids, kept = (
        {
            piece.segment.id.id
            for split in plan.splits
            for piece in split.pieces
            if isinstance(piece, RemotePiece)
        }
        for plan in (whole, pruned)
    )
    newest = {one: history.entries[one].metadata.max_timestamp_ms for one in all_ids}
    assert kept == {one for one in all_ids if newest[one] >= from_ms}
    assert pruned.facts.segments_read == len(kept)
    assert pruned.facts.segments_skipped == pruned.facts.segments_known - len(kept)
    assert pruned.facts.bytes_read + pruned.facts.bytes_skipped == whole.facts.bytes_read


@given(
    histories(),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 99), st.integers(0, 20)), max_size=9),
    st.sampled_from([SplitLimits(target_bytes=500), SplitLimits(offsets_max=3)]),
)
def test_a_piece_knows_the_aborted_transactions_that_overlap_it(
    made: tuple[History, LiveIndex], told: list[tuple[int, int, int]], limits: SplitLimits
) -> None:
    history, index = made
    end = len(history.epochs)
    aborted = [AbortedTransaction(who, first, first + size, 0) for who, first, size in told]
    tiers = Tiers(PARTITION, list(index.runs), 0, 0)
    known = {AT: Known(tiers, end, aborted)}
    plan = make_plan(known, {AT: OffsetRange(0, end)}, limits, fail_on_data_loss=True)
    for split in plan.splits:
        for piece in split.pieces:
            if isinstance(piece, RemotePiece):
                overlapping = [
                    one
                    for one in aborted
                    if one.first_offset <= piece.last and one.last_offset >= piece.first
                ]
                assert sorted(piece.aborted) == sorted(one[:3] for one in overlapping)
