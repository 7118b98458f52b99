"""Decides what an export has still to write, and how it is cut into runs and tasks.

Offsets: `start` inclusive, `end` exclusive. Must not know: Arrow, Spark, stores, sockets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pipeline.errors import DataLossError
from pipeline.jobs.values import Committed
from pipeline.plan.splits import bytes_of
from pipeline.values import OffsetRange, Piece, RemotePiece, Split, TailPiece
from rlmm.lineage import epoch_at


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one partition.

    Attributes:
        start: of the log (inclusive).
        end: where this export ends (exclusive): the remote end, or with `--tail` the log's.
        log_end: of the log (exclusive); None where a bucket is read alone, which does not know it.
    """

    start: int
    end: int
    log_end: int | None


@dataclass(frozen=True, slots=True)
class Remaining:
    """The offsets that are still to be written.

    Attributes:
        ranges: of partitions that have something left.
        gone: by partition, offsets that were deleted before they were exported.
    """

    ranges: Mapping[int, OffsetRange]
    gone: Mapping[int, OffsetRange] = field(default_factory=dict)


def deleted_text(topic: str, partition: int, gone: OffsetRange) -> str:
    """A sentence for the user."""
    return (
        f"{topic}-{partition}: offsets {gone.start} to {gone.end - 1} were deleted before they were"
        " exported"
    )


def ranges_left(
    topic: str,
    committed: Mapping[int, int],
    bounds: Mapping[int, Bounds],
    *,
    fail_on_data_loss: bool,
) -> Remaining:
    """Compare what is committed with what there is.

    Raises:
        DataLossError: offsets were deleted before they were exported, and that is to be an error;
            or the log ends before what was exported, so it is another log.
    """
    ranges: dict[int, OffsetRange] = {}
    gone: dict[int, OffsetRange] = {}
    for partition, bound in sorted(bounds.items()):
        next_offset = committed.get(partition)
        if next_offset is not None and bound.log_end is not None and next_offset > bound.log_end:
            raise DataLossError(
                f"{topic}-{partition}: exported up to offset {next_offset}, but the log ends at"
                f" {bound.log_end}: records were lost or replaced; export to another place"
            )
        start = bound.start if next_offset is None else next_offset
        if start < bound.start:
            gone[partition] = OffsetRange(start, bound.start)
            if fail_on_data_loss:
                text = deleted_text(topic, partition, gone[partition])
                raise DataLossError(f"{text}; --skip-lost continues without them")
            start = bound.start
        if start < bound.end:
            ranges[partition] = OffsetRange(start, bound.end)
    return Remaining(ranges, gone)


def only_brokers(ends: Mapping[int, int], bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """How many offsets of each partition are in no remote tier and were not exported.

    Args:
        ends: next offset by partition, as it is committed.
        bounds: of this export.

    Returns:
        Partitions that have some; none of a bucket alone, which does not know where the log ends.
    """
    counts = {
        partition: bound.log_end - max(bound.end, ends.get(partition, 0))
        for partition, bound in sorted(bounds.items())
        if bound.log_end is not None
    }
    return {partition: count for partition, count in counts.items() if count > 0}


def check_lineage(
    topic: str,
    committed: Mapping[int, int],
    epochs: Mapping[int, int],
    found: Mapping[int, int | None],
) -> None:
    """Check that the log still has the last records that were exported.

    Args:
        topic: for messages.
        committed: next offset by partition.
        epochs: leader epoch of the record before it, as it was exported.
        found: the same as the log has it now; None where it is unknown.

    Raises:
        DataLossError: it has others.
    """
    for partition, epoch in sorted(epochs.items()):
        now = found.get(partition)
        if now is not None and now != epoch:
            raise DataLossError(
                f"{topic}-{partition}: exported up to offset {committed[partition]}, the last under"
                f" leader epoch {epoch}, where the log has epoch {now} now: an unclean election"
                " replaced records that were exported; export to another place"
            )


@dataclass(frozen=True, slots=True)
class Step:
    """Splits of one partition after which a run may end: a whole number of segments.

    Attributes:
        end: the next offset once these are written.
        epoch: leader epoch of the record before it; None if unknown.
    """

    partition: int
    splits: tuple[Split, ...]
    end: int
    epoch: int | None = None

    @property
    def bytes_estimate(self) -> int:
        """Stored bytes to be read, about."""
        return sum(split.bytes_estimate for split in self.splits)


def steps(
    splits: Sequence[Split],
    ranges: Mapping[int, OffsetRange],
    end_epochs: Mapping[int, int | None],
) -> list[Step]:
    """Cut a plan at the ends of segments, partition by partition.

    A range whose offsets have no bytes at all is a step without splits.

    Args:
        splits: of the plan.
        ranges: that were planned.
        end_epochs: leader epoch of the record before the end of each range, asked before the plan
            was made: where an election came between, the next run sees a difference.
    """
    found: list[Step] = []
    planned = set()
    for partition, group in groupby(splits, lambda split: split.partition.partition):
        planned.add(partition)
        whole = list(_whole_segments(list(group)))
        for place, part in enumerate(whole):
            is_last = place == len(whole) - 1
            end = ranges[partition].end if is_last else part[-1].pieces[-1].last + 1
            epoch = _epoch_before(end, part[-1].pieces[-1])
            if epoch is None and is_last:
                epoch = end_epochs.get(partition)
            found.append(Step(partition, tuple(part), end, epoch))
    return found + [
        Step(partition, (), ranges[partition].end, end_epochs.get(partition))
        for partition in sorted(set(ranges) - planned)
    ]


def _epoch_before(end: int, piece: Piece) -> int | None:
    """The lineage of the segment that is read; brokers may have another lineage by now."""
    if isinstance(piece, RemotePiece) and piece.last == end - 1:
        return epoch_at(piece.segment.leader_epochs, piece.last)
    return None


def _whole_segments(splits: Sequence[Split]) -> Iterator[list[Split]]:
    part: list[Split] = []
    for split in splits:
        if part and not _share_a_segment(part[-1].pieces[-1], split.pieces[0]):
            yield part
            part = []
        part.append(split)
    if part:
        yield part


def _share_a_segment(one: Piece, other: Piece) -> bool:
    if isinstance(one, RemotePiece) and isinstance(other, RemotePiece):
        return one.segment.id == other.segment.id
    return False


def first_run(left: Sequence[Step], run_bytes: int) -> int:
    """How many of the steps one run takes: at least one, and then about so many stored bytes."""
    total = 0
    for count, step in enumerate(left):
        if count and total + step.bytes_estimate > run_bytes:
            return count
        total += step.bytes_estimate
    return len(left)


def text_of_work(run: Sequence[Step]) -> str:
    """How much a run reads: bytes of the remote tier, offsets of the brokers.

    A plan guesses the brokers' bytes where nothing remote says how large a record is.
    """
    pieces = [piece for step in run for split in step.splits for piece in split.pieces]
    remote = [piece for piece in pieces if isinstance(piece, RemotePiece)]
    tail = sum(one.last - one.first + 1 for one in pieces if isinstance(one, TailPiece))
    texts = [f"{sum(map(bytes_of, remote)) / 1e6:.1f} MB of the remote tier"] if remote else []
    texts += [f"{tail} offsets of the brokers"] if tail else []
    return f"{' and '.join(texts) or 'nothing'} to read"


def after(held: Committed, run: Sequence[Step]) -> Committed:
    """The contents of a target once these steps are committed, too."""
    offsets, epochs = dict(held.offsets), dict(held.epochs)
    for step in run:
        offsets[step.partition] = step.end
        epochs.pop(step.partition, None)
        if step.epoch is not None:
            epochs[step.partition] = step.epoch
    return Committed(held.identity, offsets, epochs)


def tasks(run: Sequence[Step], task_bytes: int) -> list[tuple[Split, ...]]:
    """Join neighbours of one partition to tasks of about so many stored bytes.

    A day that is cut by the end of a task has a file from each of the two.
    """
    found: list[tuple[Split, ...]] = []
    for _, group in groupby(run, lambda step: step.partition):
        task: list[Split] = []
        size = 0
        for split in (split for step in group for split in step.splits):
            if task and size + split.bytes_estimate > task_bytes:
                found.append(tuple(task))
                task, size = [], 0
            task.append(split)
            size += split.bytes_estimate
        if task:
            found.append(tuple(task))
    return found
