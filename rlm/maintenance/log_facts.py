"""Input of a pass: the leader's local log and the remote segments, at one moment. Pure.

A finished segment is *stored* as far as it is on this log's epoch chain. Stored offsets are read,
and are no hole. A segment *counts as a copy* only if its last (epoch, offset) is on this log's
epoch chain and below its high watermark. A segment that continues in an abandoned lineage is copied
again, by this log's segment borders. Local data that only such a segment holds is never dropped,
because no follower can begin at its end (model finding F1).

`log_end` for coverage is the high watermark: nothing above it is ever copied.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kafka_protocol.types import EpochEntry
from rlm.link.messages import LogDescription
from rlmm import lineage
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState


class RemoteSegment(NamedTuple):
    """A live remote segment, and its position in the topic when it became FINISHED."""

    metadata: RemoteLogSegmentMetadata
    finished_order: int | None


@dataclass(frozen=True)
class LogFacts:
    """A log description and the remote segments, with derived facts."""

    log: LogDescription
    remote: Sequence[RemoteSegment]

    @cached_property
    def chain(self) -> list[EpochEntry]:
        """The leader's epoch chain."""
        return [EpochEntry(epoch, start) for epoch, start in self.log.chain]

    @cached_property
    def finished(self) -> list[RemoteLogSegmentMetadata]:
        """Segments in COPY_SEGMENT_FINISHED, ascending by start offset."""
        return [segment.metadata for segment in finished_of(self.remote)]

    @cached_property
    def coverage(self) -> lineage.Coverage:
        """All (epoch, offset) in finished segments, of every lineage."""
        return lineage.Coverage(self.finished)

    @cached_property
    def copies(self) -> list[RemoteSegment]:
        """The finished segments that count as copies, in the order in which they were finished."""
        own = self._own_spans
        found = [each for each in finished_of(self.remote) if lineage.ends_on(each.metadata, own)]
        found.sort(key=lambda segment: (segment.finished_order or 0, segment.metadata.id.id))
        return found

    @cached_property
    def copied(self) -> lineage.Coverage:
        """All (epoch, offset) in segments that count as copies."""
        if len(self.copies) == len(self.finished):
            return self.coverage
        return lineage.Coverage(segment.metadata for segment in self.copies)

    def stored_through(self, log_start: int | None = None) -> lineage.CopiedRun | None:
        """The stored run from the log start offset (or `log_start`) on."""
        start = self.log.log_start_offset if log_start is None else log_start
        return lineage.copied_through(self.coverage, self.chain, start, self.log.high_watermark)

    def copied_through(self) -> lineage.CopiedRun | None:
        """The run of copies from the log start offset on.

        Below the local start nothing can be copied again, so there the stored run counts.
        """
        log, chain = self.log, self.chain
        start, local_start = log.log_start_offset, log.local_log_start_offset
        below = None
        if start < local_start:
            below = self.stored_through()
            if below is None or below.last_offset + 1 < local_start:
                return below
            epoch = lineage.epoch_at(chain, local_start - 1)
            assert epoch is not None, "it is stored on this chain"
            start, below = local_start, lineage.CopiedRun(local_start - 1, epoch)
        return lineage.copied_through(self.copied, chain, start, log.high_watermark) or below

    @property
    def needed_from(self) -> int:
        """Closed local offsets below this one are in the store, or below the log start offset."""
        start, run = self.log.log_start_offset, self.copied_through()
        return start if run is None else max(start, run.last_offset + 1)

    @property
    def names_what_is_needed(self) -> bool:
        """True if the description has the closed segments that are needed, or the first of them.

        Its request was sent before the needed ones were known; more is copied by now, or less.
        """
        log, needed = self.log, self.needed_from
        return log.closed_from == needed or (log.closed_from < needed and not log.more_closed_count)

    @cached_property
    def remote_start(self) -> int | None:
        """Smallest offset on the chain that is in a finished segment."""
        return lineage.remote_start(self.coverage, self.chain, self.log.high_watermark)

    @cached_property
    def _own_spans(self) -> dict[int, lineage.Span]:
        spans = lineage.chain_spans(self.chain, self.log.high_watermark)
        return {span.epoch: span for span in spans}

    def on_chain(self, segment: RemoteLogSegmentMetadata) -> list[lineage.Span]:
        """The parts of a segment that the chain confirms."""
        return lineage.parts_in(segment, self._own_spans)

    @cached_property
    def remote_bytes(self) -> int:
        """Size of all finished segments that touch the chain at or above the log start."""
        start = self.log.log_start_offset
        return sum(
            segment.segment_size_bytes
            for segment in self.finished
            if segment.end_offset >= start and self.on_chain(segment)
        )

    def hole(self, log_start: int | None = None) -> tuple[int, int] | None:
        """Offsets [start, end) at or above the log start that are neither local nor remote.

        Such a hole can only mean lost metadata: then nothing is raised and nothing deleted.
        """
        start = self.log.log_start_offset if log_start is None else log_start
        local_start = self.log.local_log_start_offset
        if start >= local_start:
            return None
        run = self.stored_through(start)
        reached = start if run is None else run.last_offset + 1
        return None if reached >= local_start else (reached, local_start)


def finished_of(remote: Iterable[RemoteSegment]) -> list[RemoteSegment]:
    """The finished ones, ascending by start offset."""
    done = SegmentState.COPY_SEGMENT_FINISHED
    found = [segment for segment in remote if segment.metadata.state is done]
    return sorted(found, key=lambda each: (each.metadata.start_offset, each.metadata.id.id))
