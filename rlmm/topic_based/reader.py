"""Writes the records of one metadata partition into the store, by the state tables.

A record that cannot be read is skipped and counted, and logged once per partition and reason. A
refused record is counted and logged. Neither stops the reading: the next record is good.
"""

import logging
from dataclasses import dataclass, field

from rlmm import records
from rlmm.events import MetadataEvent
from rlmm.fold import Fold
from rlmm.lifecycle import Verdict
from rlmm.store import Changes, MetadataStore, Position
from rlmm.topic_based.roles import Tracked
from rlmm.topic_based.topic_port import (
    Diverged,
    ReachedEnd,
    TopicEvent,
    TopicRecord,
    Unreadable,
)
from runtime.clock import Clock
from runtime.log_context import escape

log = logging.getLogger(__name__)


Stretch = list[TopicRecord | ReachedEnd]


@dataclass(slots=True)
class SortedEvents:
    """The events of one poll, by metadata partition.

    Attributes:
        diverged: Their cached state is dropped before anything else is handled.
        stretches: Records to be read, of partitions that did not diverge after them.
        unreadable: Where reading ends, behind the records.
    """

    diverged: list[Diverged] = field(default_factory=list)
    stretches: dict[int, Stretch] = field(default_factory=dict)
    unreadable: dict[int, Unreadable] = field(default_factory=dict)


def sort_events(events: list[TopicEvent]) -> SortedEvents:
    """Sort the events of a port by metadata partition."""
    found = SortedEvents()
    for event in events:
        match event:
            case Diverged():
                found.stretches.pop(event.partition, None)
                found.unreadable.pop(event.partition, None)
                found.diverged.append(event)
            case Unreadable():
                found.unreadable[event.partition] = event
            case _:
                found.stretches.setdefault(event.partition, []).append(event)
                found.unreadable.pop(event.partition, None)
    return found


@dataclass(slots=True)
class ReadCounts:
    """Counts of records since the start.

    Attributes:
        read: All records.
        refused: Refused by a state table or a fence, by verdict.
        skipped: Unreadable ones, by reason.
    """

    read: int = 0
    refused: dict[Verdict, int] = field(
        default_factory=lambda: {v: 0 for v in Verdict if v is not Verdict.ACCEPTED}
    )
    skipped: dict[str, int] = field(
        default_factory=lambda: {"unknown": 0, "tombstone": 0, "damaged": 0}
    )


class TopicReader:
    """Writes the changes of records, together with the position after them."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._told: set[tuple[int, str]] = set()
        self.counts = ReadCounts()

    def consume(self, number: int, tracked: Tracked, stretch: Stretch) -> Changes | None:
        """Apply consecutive records, in the topic's order.

        Verdicts of records that may be pending writes are noted in `tracked`.

        Returns:
            The changes; None if nothing new was read.
        """
        fold = Fold(self._store, number)
        position = tracked.position
        for event in stretch:
            if event.offset < position.offset:
                continue  # read again after an assignment
            if isinstance(event, ReachedEnd):
                position = Position(event.offset, position.leader_epoch)
                tracked.caught_up = True
                continue
            position = Position(event.offset + 1, event.leader_epoch)
            self._take(fold, number, tracked, event)
        if position == tracked.position:
            return None
        self._store.write(number, fold.changes, position)
        tracked.position = position
        return fold.changes

    def _take(self, fold: Fold, number: int, tracked: Tracked, record: TopicRecord) -> None:
        self.counts.read += 1
        try:
            event = records.decode(record.value)
        except records.UnreadableRecordError as e:
            self._skipped(number, record.offset, e)
            return
        verdict = fold.take(event, order=record.offset, seen_ms=self._clock.wall_ms())
        if verdict is not Verdict.ACCEPTED:
            self._refused(number, record.offset, event, verdict)
        if tracked.writes.await_event(event):
            tracked.verdicts[record.offset] = verdict

    def _skipped(self, number: int, offset: int, error: records.UnreadableRecordError) -> None:
        self.counts.skipped[error.reason] += 1
        if (number, error.reason) in self._told:
            return
        self._told.add((number, error.reason))
        log.warning(
            "skipped a record: partition=%d offset=%d reason=%s (said once, then counted)",
            number,
            offset,
            escape(str(error)),
        )

    def _refused(self, number: int, offset: int, event: MetadataEvent, verdict: Verdict) -> None:
        self.counts.refused[verdict] += 1
        log.warning(
            "refused a record: partition=%d offset=%d reason=%s of=%s-%d",
            number,
            offset,
            verdict.value,
            escape(event.topic_id_partition.topic),
            event.topic_id_partition.partition,
        )
