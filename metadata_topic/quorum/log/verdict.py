"""Decides if the end of the metadata log is a torn tail or damage: a pure function of facts.

A torn tail is the rest of an unacknowledged append after a kill or a power cut: it may be cut.
Damage is the loss of flushed records: a cut would take back acknowledged changes, and a later start
would give their offsets to other records. The bad place looks alike in both cases; the facts around
it differ. It is damage in these cases:

1. It lies below the newest snapshot's end. A snapshot has flushed records only.
2. It lies in a closed segment. A segment is flushed before the next one begins.
3. It lies below the noted flushed end. Each flush is noted, see `flushed_end_file`.
4. A whole batch follows that was made after the place was flushed. Each batch has the flushed end
   of its leader's log. On another node's disk this proves nothing: a follower writes several
   fetched batches at once, and a power cut may tear the first of them. So only batches of the
   epoch in the note count, because this node made them as leader.
5. A whole batch does not continue the batch before it. No power cut causes this, unless the batch's
   offset alone lay in a lost sector.

Missing facts prove nothing: without any of these signs a tail counts as torn.

A fetched snapshot replaces the log; the intent is noted before the file has its name. So a snapshot
beyond an intact log with records, without that note, was copied there by hand. Neither of the two
is known to be right, and the start is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from metadata_topic.quorum.errors import (
    DamagedMetadataError,
    ForeignSnapshotError,
    MissingMetadataError,
)
from metadata_topic.quorum.log.flushed_end_file import FLUSHED_END, FlushedEnd
from metadata_topic.quorum.log.survey import SegmentSurvey
from metadata_topic.raft.messages import SnapshotId


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """Content of a metadata directory.

    Attributes:
        directory: Its name, for messages.
        segments: Oldest first.
        newest_snapshot: By name, readable or not; None without snapshots.
        usable_snapshot: The newest readable one.
        noted: Content of `tidemark-flushed-end`; None if it is missing or damaged.
    """

    directory: str
    segments: Sequence[SegmentSurvey]
    newest_snapshot: SnapshotId | None = None
    usable_snapshot: SnapshotId | None = None
    noted: FlushedEnd | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result for the next start.

    Attributes:
        segments: The contiguous ones, oldest first.
        stale: Older ones before a hole; all of them and the hole are below the snapshot.
        end_offset: End of the last sound batch (exclusive).
        torn_bytes: To be cut, after that batch.
        last_epoch: Highest epoch in any batch, sound or after the place; -1 for none.
        is_replaced: The snapshot replaces the whole log, which restarts at its end.
    """

    segments: tuple[SegmentSurvey, ...]
    end_offset: int
    torn_bytes: int
    last_epoch: int
    is_replaced: bool
    stale: tuple[SegmentSurvey, ...] = ()


def validate(facts: DirectoryFacts) -> Verdict:
    """Distinguish a torn tail from damage.

    Raises:
        DamagedMetadataError: Flushed bytes are lost or changed.
        ForeignSnapshotError: A snapshot not made or fetched by this node contradicts the log.
        MissingMetadataError: The log begins after the end of the usable snapshot.
    """
    base = 0 if facts.usable_snapshot is None else facts.usable_snapshot.end_offset
    epochs = [later.epoch for s in facts.segments for later in s.later]
    last_epoch = max([*epochs, *(s.last_epoch for s in facts.segments)], default=-1)
    # A log that is being dropped may have any rest of segments, in any state.
    if _is_replacement_under_way(facts):
        return Verdict((), base, 0, last_epoch, True)
    chain = _chain(facts, base)
    if _is_behind_whole(facts, chain) and chain[-1].end_offset == 0:
        # No records to lose: an operator gives a new node a snapshot to begin with.
        return Verdict((), base, 0, last_epoch, True)
    _check_end(facts, chain)
    end = chain[-1].end_offset if chain else None
    torn_bytes = chain[-1].size_bytes - chain[-1].whole_bytes if chain else 0
    if chain and chain[0].base_offset > base:
        raise MissingMetadataError(
            f"{facts.directory}: the log begins at offset {chain[0].base_offset}, the newest usable"
            f" snapshot ends at {base}: the records between are lost. Nothing was changed. "
            "Restore the missing segments, or a snapshot that ends at or after the log's beginning"
        )
    stale = tuple(facts.segments[: len(facts.segments) - len(chain)])
    end_offset = base if end is None else end
    return Verdict(tuple(chain), end_offset, torn_bytes, last_epoch, False, stale)


def _chain(facts: DirectoryFacts, base: int) -> list[SegmentSurvey]:
    """The contiguous segments up to the last one."""
    chain: list[SegmentSurvey] = []
    for segment in facts.segments:
        if chain and segment.base_offset != chain[-1].end_offset:
            before = chain[-1]
            if before.fault is None and before.end_offset < segment.base_offset <= base:
                # Segments below the snapshot were being deleted; a power cut brought names back.
                chain = [segment]
                continue
            what = before.fault or f"the file ends, the next one is {segment.name}"
            raise _damage(facts, before, what, "it is in a closed segment")
        if chain and segment.last_epoch >= 0 and segment.last_epoch < chain[-1].last_epoch:
            what = f"epoch {segment.last_epoch} after epoch {chain[-1].last_epoch}"
            raise _damage(facts, segment, what, "epochs never fall")
        chain.append(segment)
    for closed in chain[:-1]:
        if closed.fault is not None:
            raise _damage(facts, closed, closed.fault, "it is in a closed segment")
    return chain


def _newest_usable(facts: DirectoryFacts) -> SnapshotId | None:
    """The newest snapshot, if it is usable and not from the format step."""
    snapshot = facts.usable_snapshot
    if snapshot is None or snapshot.end_offset == 0 or snapshot != facts.newest_snapshot:
        return None
    return snapshot


def _is_replacement_under_way(facts: DirectoryFacts) -> bool:
    """True if the log was being dropped for that snapshot, by the intent on disk."""
    snapshot = _newest_usable(facts)
    return snapshot is not None and facts.noted is not None and facts.noted.restart == snapshot


def _has_batches(chain: Sequence[SegmentSurvey]) -> bool:
    return any(segment.whole_bytes for segment in chain)


def _is_behind_whole(facts: DirectoryFacts, chain: Sequence[SegmentSurvey]) -> bool:
    """True if the newest snapshot ends beyond a log that is intact by its own note.

    Our own snapshot has flushed records only, whose end was noted before. So this snapshot is of
    another incarnation, or log and note are an older copy.
    """
    snapshot, noted = _newest_usable(facts), facts.noted
    if snapshot is None or noted is None or not chain:
        return False
    last = chain[-1]
    is_whole = noted.offset <= last.end_offset and not last.is_contradiction
    return last.end_offset < snapshot.end_offset and is_whole and not _proof(facts, last)


def _is_of_newer_epoch(facts: DirectoryFacts, chain: Sequence[SegmentSurvey]) -> bool:
    """True if the newest snapshot has an epoch that is not in the log.

    Then the log's records may have lost an election, even at the snapshot's offsets.
    """
    snapshot = _newest_usable(facts)
    if snapshot is None or not _has_batches(chain):
        return False
    return snapshot.epoch > max(segment.last_epoch for segment in chain)


def _check_end(facts: DirectoryFacts, chain: Sequence[SegmentSurvey]) -> None:
    """Check that no flushed record is missing after the last sound batch."""
    noted = 0 if facts.noted is None else facts.noted.offset
    snapshot_end = 0 if facts.newest_snapshot is None else facts.newest_snapshot.end_offset
    if not chain:
        if max(noted, snapshot_end) > 0:
            raise _lost_log(facts, max(noted, snapshot_end))
        return
    last = chain[-1]
    what = last.fault or "the log ends"
    if _is_behind_whole(facts, chain):
        raise _foreign(facts, last)
    if last.end_offset < snapshot_end:
        raise _damage(facts, last, what, f"it is below {snapshot_end}, the newest snapshot's end")
    if last.end_offset < noted:
        raise _damage(
            facts, last, what, f"it is below {noted}, which {FLUSHED_END} notes as flushed"
        )
    if last.is_contradiction:
        raise _damage(facts, last, what, "the batch is whole: it was not torn")
    proof = _proof(facts, last)
    if proof is not None:
        raise _damage(facts, last, what, proof)
    if _is_of_newer_epoch(facts, chain):
        raise _foreign(facts, last)


def _proof(facts: DirectoryFacts, segment: SegmentSurvey) -> str | None:
    """Proof that the place after the sound batches was flushed; None without any.

    Without a note no batch was fetched: a node writes it before its first Fetch.
    """
    for later in segment.later:
        if facts.noted is not None and facts.noted.led_epoch != later.epoch:
            continue
        if later.flushed_end is not None and later.flushed_end > segment.end_offset:
            return (
                f"the batch of offset {later.base_offset} at position {later.position} was begun "
                f"when the log was flushed to {later.flushed_end}"
            )
    return None


def _damage(
    facts: DirectoryFacts, segment: SegmentSurvey, what: str, why: str
) -> DamagedMetadataError:
    return DamagedMetadataError(
        f"{facts.directory}/{segment.name} is damaged at position {segment.whole_bytes} (offset "
        f"{segment.end_offset}): {what}. This is no torn tail: {why}. Nothing was changed. "
        f"{_remedy(facts)}"
    )


def _foreign(facts: DirectoryFacts, last: SegmentSurvey) -> ForeignSnapshotError:
    snapshot = facts.newest_snapshot
    assert snapshot is not None
    return ForeignSnapshotError(
        f"{facts.directory}/{snapshot.file_name} is a snapshot up to offset {snapshot.end_offset} "
        f"of epoch {snapshot.epoch}; the log ends at offset {last.end_offset}, in "
        f"{facts.directory}/{last.name}. {FLUSHED_END} does not note that this snapshot replaces "
        "the log, so it is of another incarnation, or log and note are an older copy than it. "
        "Nothing was "
        f"changed. If this node made the snapshot: {_remedy(facts)}. Only if it is of another "
        f"life: Move {snapshot.file_name} out of the directory, and the node continues with its log"
    )


def _lost_log(facts: DirectoryFacts, end: int) -> DamagedMetadataError:
    return DamagedMetadataError(
        f"{facts.directory}: all segments of the metadata log are gone, and they were flushed to "
        f"offset {end}. Nothing was changed. {_remedy(facts)}"
    )


def _remedy(facts: DirectoryFacts) -> str:
    way = (
        "Restore the file from a copy, or, one of several controllers, let it fetch the log again: "
        "docs/metadata-log.md says when that is safe"
    )
    if facts.usable_snapshot is None or facts.usable_snapshot.end_offset == 0:
        return f"{way}; there is no snapshot of the metadata"
    name = facts.usable_snapshot.file_name
    return (
        f"{way}. The newest snapshot is {name}; the same page says how the only controller "
        "continues "
        "from it, losing every change made after it"
    )
