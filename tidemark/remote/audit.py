"""Compares what the metadata says of a partition with what the store holds of it. Pure.

The argument why a running cluster gives no false finding is in `audit_run.py`, which makes the
observations that are compared here.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum

from kafka_protocol.types import TopicIdPartition
from rlmm.lifecycle import SegmentEntry
from rlmm.lineage import superseded
from rsm_plugins.layout.objects import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    UnsafeNameError,
    object_names,
)
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState

DANGLING_SLACK_MS = 300_000
"""What a tier may take after the longest copy, until it notices, restarts and takes STARTED back;
clocks of this machine and the brokers may differ, too."""

SUFFIXES = (LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX)


class Kind(Enum):
    """The faults that an audit finds."""

    MISSING = "missing"
    """FINISHED in the metadata, and an object is not in the store: reads fail."""
    SHORT = "short"
    """An object has another size than metadata or manifest say."""
    CORRUPT = "corrupt"
    """The objects are there, and their bytes are not those that were copied."""
    DUPLICATE = "duplicate"
    """All it holds lies in segments that were finished earlier; the next pass deletes it."""
    DANGLING = "dangling"
    """STARTED for longer than any copy may take, and no broker deletes it."""
    ORPHAN = "orphan"
    """Objects of a segment that the metadata does not know, or not any more."""
    FOREIGN = "foreign"
    """An object whose name is none of this layout's; never deleted."""


@dataclass(frozen=True, slots=True)
class Held:
    """The objects of one segment in the store.

    Attributes:
        base: their common name, without suffix.
        sizes: bytes by suffix.
        modified_ms: when the youngest was written, by the store's clock.
    """

    base: str
    topic: str
    segment_id: bytes
    start_offset: int
    sizes: Mapping[str, int]
    modified_ms: int

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the objects that are there."""
        return tuple(self.base + suffix for suffix in SUFFIXES if suffix in self.sizes)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        partition: whose; None for a foreign object.
        segment_id: 16 raw bytes, None for a foreign object.
        start_offset, end_offset: both inclusive; None where unknown.
        keys: the objects it is about.
        size_bytes: of these, as far as they are there.
        detail: one sentence.
        modified_ms: by the store's clock; None where no object is there.
        is_ours: of an orphan: the metadata tells of its partition, so that this cluster wrote it.
    """

    kind: Kind
    detail: str
    keys: tuple[str, ...] = ()
    partition: TopicIdPartition | None = None
    segment_id: bytes | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    size_bytes: int = 0
    modified_ms: int | None = None
    is_ours: bool = False


def layout_bases(metadata: RemoteLogSegmentMetadata) -> Sequence[str]:
    """Where the objects of a segment may lie: the one place that the layout gives."""
    try:
        return (object_names(metadata).base,)
    except UnsafeNameError:
        return ()


@dataclass(frozen=True, slots=True)
class Observed:
    """The observations of one partition.

    Attributes:
        is_known: a record of the metadata topic names it; also long after its topic was deleted.
        entries: its live segments when the metadata was read last.
        in_motion: ids of segments that changed their state while the audit looked.
        held: what the store holds, by base name; None: it was not listed.
        bases: where the objects of a segment may lie; readers look at the first place.
        broken: what was wrong with a segment when it was read back, by its id.
        is_closing: its topic was deleted, and the remover of deleted topics is at work.
    """

    partition: TopicIdPartition
    is_known: bool
    entries: Sequence[SegmentEntry]
    in_motion: AbstractSet[bytes] = frozenset()
    held: Mapping[str, Held] | None = None
    bases: Callable[[RemoteLogSegmentMetadata], Sequence[str]] = layout_bases
    broken: Mapping[bytes, tuple[Kind, str]] = field(default_factory=dict)
    is_closing: bool = False


def validate(seen: Observed, *, now_ms: int, copy_max_ms: int) -> Iterator[Finding]:
    """All findings of a partition.

    Args:
        seen: the observations.
        now_ms: wall clock, for the age of STARTED records.
        copy_max_ms: the longest copy.
    """
    still = [entry for entry in seen.entries if entry.metadata.id.id not in seen.in_motion]
    for entry in still:
        if entry.metadata.state is SegmentState.COPY_SEGMENT_FINISHED:
            yield from _finished(entry.metadata, seen)
        elif entry.metadata.state is SegmentState.COPY_SEGMENT_STARTED and not seen.is_closing:
            yield from _started(entry.metadata, now_ms, copy_max_ms)
    yield from _duplicates(still)
    yield from _orphans(seen)


def _finished(metadata: RemoteLogSegmentMetadata, seen: Observed) -> Iterator[Finding]:
    base = next(iter(seen.bases(metadata)), "")
    held = (seen.held or {}).get(base)
    if seen.held is not None:
        absent = [suffix for suffix in SUFFIXES if held is None or suffix not in held.sizes]
        if absent:
            keys = tuple(base + suffix for suffix in absent)
            yield _of(metadata, Kind.MISSING, "no object " + ", ".join(absent), held, keys)
            return
    size = None if held is None else held.sizes[LOG_SUFFIX]
    if held is not None and size != metadata.segment_size_bytes:
        detail = f"{size} bytes, the metadata says {metadata.segment_size_bytes}"
        yield _of(metadata, Kind.SHORT, detail, held, (held.base + LOG_SUFFIX,))
    if metadata.id.id in seen.broken:
        kind, detail = seen.broken[metadata.id.id]
        yield _of(metadata, kind, detail, held)


def _started(
    metadata: RemoteLogSegmentMetadata, now_ms: int, copy_max_ms: int
) -> Iterator[Finding]:
    age_ms = now_ms - metadata.event_timestamp_ms
    if age_ms > copy_max_ms + DANGLING_SLACK_MS:
        detail = f"STARTED {age_ms // 1_000} s ago, the longest copy is {copy_max_ms // 1_000} s"
        yield _of(metadata, Kind.DANGLING, detail)


def _duplicates(still: Sequence[SegmentEntry]) -> Iterator[Finding]:
    """The segments that the overlap rule gives up, of those that count as copies for every lineage.

    One that continues where another lineage has a later epoch is none for that one: its leader
    copies what is below once more (`lineage.superseded`).
    """
    ordered = sorted(
        (one.finished_order, one.metadata.id.id, one.metadata)
        for one in still
        if one.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
        and one.finished_order is not None
    )
    lowest: dict[int, int] = {}  # offset of an epoch in any of them
    for _, _, metadata in ordered:
        for entry in metadata.leader_epochs:
            at = entry.start_offset
            lowest[entry.epoch] = min(at, lowest.get(entry.epoch, at))
    ends: dict[int, float] = {}  # where a later epoch begins, by epoch
    later = math.inf
    for epoch in sorted(lowest, reverse=True):
        ends[epoch] = later
        later = min(later, lowest[epoch])
    for metadata in superseded(one for _, _, one in ordered if _is_on_all(one, ends)):
        yield _of(metadata, Kind.DUPLICATE, "all its offsets lie in segments finished earlier")


def _is_on_all(metadata: RemoteLogSegmentMetadata, ends: Mapping[int, float]) -> bool:
    last = metadata.end_offset
    epochs = [one.epoch for one in metadata.leader_epochs if one.start_offset <= last]
    return bool(epochs) and last < ends[epochs[-1]]


def _orphans(seen: Observed) -> Iterator[Finding]:
    known = {base for entry in seen.entries for base in seen.bases(entry.metadata)}
    for base, held in sorted((seen.held or {}).items()):
        if base in known or held.segment_id in seen.in_motion:
            continue
        detail = (
            "the metadata does not know it, or knows it as deleted"
            if seen.is_known
            else "the metadata never knew its partition: perhaps another cluster's"
        )
        yield Finding(
            Kind.ORPHAN,
            detail,
            held.keys,
            seen.partition._replace(topic=held.topic),
            held.segment_id,
            held.start_offset,
            None,
            sum(held.sizes.values()),
            held.modified_ms,
            is_ours=seen.is_known,
        )


def _of(
    metadata: RemoteLogSegmentMetadata,
    kind: Kind,
    detail: str,
    held: Held | None = None,
    keys: tuple[str, ...] | None = None,
) -> Finding:
    there = () if held is None else held.keys
    return Finding(
        kind,
        detail,
        there if keys is None else keys,
        metadata.topic_id_partition,
        metadata.id.id,
        metadata.start_offset,
        metadata.end_offset,
        0 if held is None else sum(held.sizes.values()),
        None if held is None else held.modified_ms,
    )
