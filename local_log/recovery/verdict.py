"""Decides whether a log may be opened, and which bytes are cut. Pure function of a survey.

Flushed offsets must be present and sound. A log that breaks this is refused, and the refusal has
the plan that an operator may accept. Above the flushed offsets a kill or a power cut may leave any
bytes, so the log is cut at the first fault. See docs/decisions/holes-after-a-power-cut.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kafka_protocol.types import EpochEntry
from local_log.file_names import LOG, segment_file
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.recovery.acceptance import Accepted, Adopted
from local_log.refusal import Fault, FaultKind, RefusalFacts
from local_log.segment.reading import Ending, Gap


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """One segment as the survey found it.

    Attributes:
        was_read: True if every batch was read, False if only the first and the last one.
        whole_bytes: Every batch below this byte (exclusive) is sound.
        end_offset: Offset after the last sound batch (exclusive).
        places: (leader epoch, base offset) of some batches; epoch -1 is none. Of a segment that
            was read: first batch of each epoch, and the last batch. Else the first and the last.
    """

    base_offset: int
    size_bytes: int
    was_read: bool
    whole_bytes: int
    end_offset: int
    ending: Ending = Ending.WHOLE
    first_gap: Gap | None = None
    lacks_records: bool = False
    places: tuple[EpochEntry, ...] = ()
    doubtful_from: int | None = None


@dataclass(frozen=True, slots=True)
class LogSurvey:
    """All facts that the verdict depends on.

    Attributes:
        segments: Oldest first.
        chain: Epoch chain in the file; None if the file is missing, empty or damaged.
        chain_problem: Reason for None; else empty.
        recovery_point: Every offset below it (exclusive) was flushed; None if it is unknown.
        log_start: From the checkpoint, None if it has none.
        high_watermark: From the checkpoint, 0 if it has none.
        is_clean: The last stop was clean.
        is_tiered: Offsets below the first segment may be remote.
        may_have_holes: The topic compacts, or a cleaner's checkpoint lists the log.
        accepted: Faults and holes that an operator accepted before.
    """

    segments: tuple[SegmentSurvey, ...]
    chain: tuple[EpochEntry, ...] | None
    chain_problem: str
    recovery_point: int | None
    log_start: int | None
    high_watermark: int
    is_clean: bool
    is_tiered: bool
    may_have_holes: bool
    accepted: Accepted

    @property
    def flushed_end(self) -> int:
        """Every offset below this (exclusive) was flushed, as far as is known."""
        marks = [self.recovery_point or 0]
        if self.is_clean or self.recovery_point is None:
            marks.append(self.high_watermark)
        return max(marks)


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut of a segment's log file.

    Attributes:
        base_offset: Of the segment.
        position: The file's new end in bytes (exclusive).
        keeps: The removed bytes are copied to a `.cut` file first.
    """

    base_offset: int
    position: int
    keeps: bool


@dataclass(frozen=True, slots=True)
class Open:
    """Plan of the changes by which a log is opened.

    Attributes:
        aside: Base offsets of segments that are set aside as a whole, oldest first.
        cuts: Oldest first.
        log_end: Exclusive. After an accepted loss it may lie above the last segment's end. A batch
            without records then covers the offsets between, so that none of them is assigned twice.
        log_start: Inclusive.
        log_start_known: False if a tiered log's start was in a checkpoint that is lost.
        chain: The epoch chain from here on; None if it is to be rebuilt from the batches.
        chain_problem: Reason for the rebuild; else empty.
        chain_lost: Reason why the epochs below the first segment are unknown although these offsets
            are remote; else empty.
        holes: Ranges (first, end), end exclusive, that are accepted now and must be written down.
        is_sparse: Missing offsets are no fault in this log, and this must be written down.
        accepted: Faults that an operator accepted.
        adopts: The log end of `tidemark remote adopt` is not yet reached.
        begins_at: Offset of the first segment if no segment stays; None for the log end.
    """

    aside: tuple[int, ...]
    cuts: tuple[Cut, ...]
    log_end: int
    log_start: int
    log_start_known: bool
    chain: tuple[EpochEntry, ...] | None
    chain_problem: str
    holes: tuple[tuple[int, int], ...]
    is_sparse: bool
    accepted: tuple[Fault, ...] = ()
    chain_lost: str = ""
    adopts: bool = False
    begins_at: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The log stays unchanged; `if_accepted` is the plan if an operator accepts the facts."""

    facts: RefusalFacts
    if_accepted: Open


def validate(survey: LogSurvey) -> Open | Refused:
    """Return the plan for one log, or its refusal."""
    return _Validator(survey).verdict()


@dataclass(slots=True)
class _Validator:
    survey: LogSurvey
    faults: list[Fault] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    kept: list[SegmentSurvey] = field(default_factory=list)
    end: int = 0
    found_end: int = 0

    def verdict(self) -> Open | Refused:
        survey = self.survey
        self._walk_segments()
        self.found_end = self.end
        adopted = self._still_to_adopt()
        if adopted is None:
            self._check_end()
        else:
            self._adopt(adopted)
        log_start, known = self._log_start()
        chain, problem = self._chain(log_start)
        if adopted is not None:
            chain = adopted.chain
        has_holes = any(s.first_gap is not None for s in survey.segments) or any(
            later.base_offset > s.end_offset for s, later in pairwise(survey.segments)
        )
        plan = Open(
            tuple(sorted(self.aside)),
            tuple(self.cuts),
            self.end,
            log_start,
            known,
            chain,
            problem,
            () if self._is_sparse() else tuple(self.holes),
            self._is_sparse() and (has_holes or bool(self.holes)),
            tuple(self.faults),
            problem if self._is_remote() else "",
            adopted is not None,
            None if adopted is None else adopted.begin,
        )
        if survey.accepted.covers(plan.accepted):
            return plan
        facts = RefusalFacts(
            plan.accepted,
            survey.log_start,
            self.found_end,
            survey.recovery_point,
            survey.flushed_end,
        )
        return Refused(facts, plan)

    # -- segments -------------------------------------------------------------------------------

    def _is_safe(self, offset: int) -> bool:
        """True if the record at `offset` was flushed, or may have been."""
        point = self.survey.recovery_point
        return self.survey.is_clean or point is None or offset < point

    def _is_sparse(self) -> bool:
        """True if missing offsets are no fault, anywhere in this log."""
        survey = self.survey
        return (
            survey.may_have_holes
            or survey.accepted.is_sparse
            or any(segment.lacks_records for segment in survey.segments)
            # A cleaner skips the last segment and leaves no damage. So a gap in the last segment
            # or in a damaged one is a changed base offset.
            or any(
                segment.first_gap is not None and segment.ending is Ending.WHOLE
                for segment in survey.segments[:-1]
            )
        )

    def _walk_segments(self) -> None:
        segments = self.survey.segments
        self.end = segments[0].base_offset if segments else self.survey.log_start or 0
        was_cut = False
        for index, segment in enumerate(segments):
            is_last = index == len(segments) - 1
            if segment.base_offset > self.end and not self._may_follow(segment, was_cut=was_cut):
                self.aside += [later.base_offset for later in segments[index:]]
                return
            cut, offset, was_cut = self._cut(segment, is_last=is_last)
            if cut is not None and cut.position == 0 and cut.keeps:
                self.aside.append(segment.base_offset)
            else:
                self.kept.append(segment)
                self.end = offset
                if cut is not None:
                    self.cuts.append(cut)
            if cut is not None and not was_cut:
                self.aside += [later.base_offset for later in segments[index + 1 :]]
                return

    def _may_follow(self, segment: SegmentSurvey, *, was_cut: bool) -> bool:
        """True if a segment stays although offsets are missing before it."""
        first, end = self.end, segment.base_offset
        if end <= (self.survey.log_start or 0):
            return True  # a power cut undid a part of a deletion; no reader reads below the start
        if self._is_sparse() or self.survey.accepted.knows_hole(first, end):
            return True
        if not was_cut:
            if not self._is_safe(first):
                return False
            self._add(FaultKind.HOLE, segment, 0, first, end)
        if self.kept:
            self.holes.append((first, end))
        return True

    def _cut(self, segment: SegmentSurvey, *, is_last: bool) -> tuple[Cut | None, int, bool]:
        """Return the cut of a segment, its end offset after it, and whether that is a fault."""
        position, offset = segment.whole_bytes, segment.end_offset
        ending, gap = segment.ending, segment.first_gap
        if gap is not None and not self._is_sparse():
            position, offset, ending = gap.position, gap.offset, Ending.DAMAGED
        if ending is Ending.WHOLE:
            return None, offset, False
        if ending is Ending.TORN and is_last:
            return Cut(segment.base_offset, position, keeps=False), offset, False
        cut = Cut(segment.base_offset, position, keeps=True)
        kind = FaultKind.OVERLAP if ending is Ending.OVERLAPS else FaultKind.DAMAGE
        doubtful = segment.doubtful_from
        lost = offset if doubtful is None else min(offset, doubtful)
        is_fault = kind is FaultKind.OVERLAP or self._is_safe(lost)
        if is_fault:
            self._add(kind, segment, position, lost, self._following(segment, lost))
        return cut, offset, is_fault

    def _following(self, segment: SegmentSurvey, offset: int) -> int:
        """Offset (exclusive) that a damaged segment should reach, as far as is known."""
        bases = [other.base_offset for other in self.survey.segments]
        later = [base for base in bases if base > segment.base_offset]
        return max(min(later, default=self.survey.flushed_end), offset)

    def _add(
        self, kind: FaultKind, segment: SegmentSurvey | None, position: int, offset: int, limit: int
    ) -> None:
        name = segment_file(segment.base_offset, LOG) if segment is not None else ""
        self.faults.append(Fault(kind, name, position, offset, limit))

    # -- its start and end ----------------------------------------------------------------------

    def _still_to_adopt(self) -> Adopted | None:
        """Return the adopted end; None if the log has reached it, or was longer since."""
        survey, adopted = self.survey, self.survey.accepted.adopted
        known_end = max(survey.flushed_end, survey.log_start or 0)
        if adopted is None or self.found_end >= adopted.end or known_end > adopted.end:
            return None
        return adopted

    def _adopt(self, adopted: Adopted) -> None:
        """Move the log end to the adopted one; missing offsets below it are no fault."""
        if adopted.begin is not None:
            self.aside += [segment.base_offset for segment in self.kept]
            self.kept, self.cuts, self.holes = [], [], []
        self.end = adopted.end

    def _check_end(self) -> None:
        survey, last = self.survey, self.kept[-1] if self.kept else None
        if self.end < survey.flushed_end:
            at = last.whole_bytes if last is not None else 0
            self._add(FaultKind.ENDS_TOO_EARLY, last, at, self.end, survey.flushed_end)
            self.end = survey.flushed_end
        elif not survey.segments and survey.recovery_point is None:
            # A log has at least one segment from its creation on.
            self._add(FaultKind.EVERY_SEGMENT_LOST, None, 0, self.end, self.end)
        start = survey.log_start
        if start is None or self.found_end >= start:
            return
        if survey.recovery_point is None or self.found_end < survey.recovery_point:
            self._add(FaultKind.ENDS_BELOW_ITS_START, last, 0, self.found_end, start)
        self.aside += [segment.base_offset for segment in self.kept]
        self.kept, self.cuts, self.holes, self.end = [], [], [], max(start, self.end)

    def _local_start(self) -> int:
        return self.kept[0].base_offset if self.kept else self.end

    def _log_start(self) -> tuple[int, bool]:
        survey, local_start = self.survey, self._local_start()
        checkpoint = survey.log_start
        if survey.is_tiered:
            if checkpoint is None:
                start = self._start_by_chain(local_start)
                return start, start == 0
            return checkpoint, True
        if checkpoint is not None and survey.segments:
            first = survey.segments[0]
            if first.base_offset > checkpoint:
                kind = FaultKind.FIRST_SEGMENT_LOST
                self._add(kind, first, 0, checkpoint, first.base_offset)
        return max(checkpoint or 0, local_start), True

    def _start_by_chain(self, local_start: int) -> int:
        """Guess an unknown log start: the chain's first entry is clipped to the log start."""
        if self.kept and self.survey.chain:
            start = self.survey.chain[0].start_offset
            if local_start < start < self.kept[0].end_offset:
                return start
        return local_start

    # -- the epoch chain ------------------------------------------------------------------------

    def _chain(self, log_start: int) -> tuple[tuple[EpochEntry, ...] | None, str]:
        """Return the chain and "", or None and the reason for a rebuild from the batches."""
        survey = self.survey
        chain, problem = survey.chain, survey.chain_problem
        if chain is not None:
            chain, problem = self._compared(chain, log_start)
        if self._is_remote() and chain is not None:
            # An unknown log start is at most the local start, so no chain begins above that.
            lowest = log_start if survey.log_start is None else survey.log_start
            on_disk = survey.chain or ()
            if not on_disk or on_disk[0].start_offset > lowest:
                problem = "it begins above the log start"
            elif chain[-1].epoch > on_disk[-1].epoch:
                # A tiered log writes its chain before the first batch of an epoch.
                problem = f"it ends before epoch {chain[-1].epoch}"
        return (None, problem) if problem else (chain, "")

    def _is_remote(self) -> bool:
        """True if offsets below the first segment are, or may be, in the remote tier."""
        survey, local_start = self.survey, self._local_start()
        return survey.is_tiered and (
            local_start > 0 if survey.log_start is None else survey.log_start < local_start
        )

    def _compared(
        self, chain: tuple[EpochEntry, ...], log_start: int
    ) -> tuple[tuple[EpochEntry, ...] | None, str]:
        """Return the chain with newer epochs of the batches, or None and the contradiction."""
        if not _ascends(chain):
            return None, "its entries do not ascend"
        cache = LeaderEpochCache(chain)
        # The checksum does not cover a batch's epoch. If epochs of batches contradict each other,
        # only segments that were read whole can refute the chain: they are validated.
        has_changed_bit = self._epochs_fall()
        for segment in self.kept:
            if has_changed_bit and not segment.was_read:
                continue
            ends = [*(offset for _, offset in segment.places), segment.end_offset][1:]
            for (epoch, base_offset), run_end in zip(segment.places, ends, strict=True):
                first, end = max(base_offset, log_start), min(run_end, self.found_end)
                if epoch < 0 or first >= end:
                    continue
                newest = cache.entries()[-1:]
                if segment.was_read and all(
                    epoch > one.epoch and first > one.start_offset for one in newest
                ):
                    cache.assign(epoch, first)  # the batch reached the disk before the chain did
                    continue
                # In a segment that was read, the whole run has this epoch.
                for offset in (first, end - 1) if segment.was_read else (first,):
                    if cache.epoch_for(offset) != epoch:
                        known = cache.epoch_for(offset)
                        return None, f"offset {offset} is of epoch {epoch}, it says {known}"
        return tuple(cache.entries()), ""

    def _epochs_fall(self) -> bool:
        epochs = [place.epoch for segment in self.kept for place in segment.places]
        return any(other < one for one, other in pairwise(e for e in epochs if e >= 0))


def _ascends(chain: Sequence[EpochEntry]) -> bool:
    return all(
        one.epoch < other.epoch and one.start_offset < other.start_offset
        for one, other in pairwise(chain)
    ) and all(one.epoch >= 0 and one.start_offset >= 0 for one in chain)
