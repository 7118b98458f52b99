"""Moving the log start by total retention, and taking segments through deletion.

Write order: the log start, durably; then for each segment, in offset order, DELETE_STARTED, its
objects, and DELETE_FINISHED once the copy maximum has passed since its STARTED was first seen,
right after a last delete of its objects: a PUT of a dead copier may land until then.
"""

from rlm.link.messages import PartitionSettings
from rlm.red_kinds import TierRed
from rlm.upkeep.effects import (
    Carry,
    DeleteObjects,
    Judge,
    Measure,
    MoveStart,
    PassResult,
    StartedSeenMs,
    Task,
    UpdateState,
    WallMs,
    WasDeletedOnce,
)
from rlm.upkeep.log_facts import LogFacts
from rlm.upkeep.ownership import OwnCopies
from rlm.upkeep.retention_policy import (
    Deletion,
    deletion_is_due,
    deletions,
    log_start_by_retention,
)
from rlm.upkeep.settling import hole_of
from rlmm.api import SegmentUpdate
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState


def expiration_pass(
    settings: PartitionSettings, own_copies: OwnCopies, *, broker_id: int, copy_max_ms: int
) -> Task[PassResult]:
    """One pass over a led partition."""
    own_copies.look()
    facts: LogFacts = yield Judge()
    if facts.hole() is not None:
        return PassResult(red=hole_of(facts).reason)
    yield Carry(facts.log.log_start_offset)
    now_ms: int = yield WallMs()
    log_start = facts.log.log_start_offset
    move = log_start_by_retention(facts, settings, now_ms)
    if move is not None:
        taken: bool = yield MoveStart(move.offset, move.reason)
        if not taken:
            return PassResult(red=TierRed.LOG_START_REFUSED.text(offset=move.offset))
        log_start = move.offset
        yield Carry(log_start)
    due = deletions(facts, log_start, own_copies.seen())
    yield Measure(
        delete_lag_segments=len(due),
        delete_lag_bytes=sum(deletion.metadata.segment_size_bytes for deletion in due),
    )
    errors = 0
    for deletion in due:
        try:
            yield from _delete(deletion, facts.log.metadata_offset, broker_id, copy_max_ms)
        except RemoteStorageError:
            errors += 1  # counted and logged where it was performed; the next pass tries again
    return PassResult(store_errors=errors)


def _delete(
    deletion: Deletion, metadata_offset: int, broker_id: int, copy_max_ms: int
) -> Task[None]:
    metadata = deletion.metadata
    if metadata.state is not SegmentState.DELETE_SEGMENT_STARTED:
        yield from _write(metadata, SegmentState.DELETE_SEGMENT_STARTED, metadata_offset, broker_id)
    seen_ms: int = yield StartedSeenMs(metadata)
    now_ms: int = yield WallMs()
    if deletion_is_due(seen_ms, now_ms, copy_max_ms):
        yield DeleteObjects(metadata)
        yield from _write(
            metadata, SegmentState.DELETE_SEGMENT_FINISHED, metadata_offset, broker_id
        )
        return
    deleted: bool = yield WasDeletedOnce(metadata.id.id)
    if not deleted:
        yield DeleteObjects(metadata)


def _write(
    metadata: RemoteLogSegmentMetadata, state: SegmentState, metadata_offset: int, broker_id: int
) -> Task[None]:
    now_ms: int = yield WallMs()
    update = SegmentUpdate(metadata.id, state, now_ms, broker_id, metadata.custom_metadata)
    yield UpdateState(update, metadata_offset)
