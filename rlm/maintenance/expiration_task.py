"""Moves the log start offset by total retention, and deletes segments below it.

Write order: first the log start offset, durably, on the leader and on in-sync followers. Then for
each segment, in offset order: DELETE_STARTED, its objects, and DELETE_FINISHED. DELETE_FINISHED
waits until the copy maximum has passed since the segment's STARTED was first seen. A PUT of a dead
copier may land until then, so the objects are deleted again right before it.

Deletions may be slow, and many. So a pass ends after some time and queues again behind those of
other partitions.
"""

from contextlib import nullcontext
from typing import Final

from rlm.link.messages import PartitionSettings
from rlm.maintenance.effects import (
    Carry,
    DeleteObjects,
    Measure,
    MoveStart,
    PassResult,
    StartedSeenMs,
    Task,
    UpdateState,
    Validate,
    WallMs,
    WasDeletedOnce,
)
from rlm.maintenance.log_facts import LogFacts
from rlm.maintenance.log_validation import hole_of
from rlm.maintenance.ownership import CallHangsError, OwnCopies
from rlm.maintenance.retention_policy import (
    Deletion,
    deletion_is_due,
    deletions,
    log_start_by_retention,
)
from rlm.maintenance.store_gate import StoreGate
from rlmm.api import SegmentUpdate
from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.health_reasons import HealthReason

PASS_MS: Final = 10_000
"""A pass ends with the segment that it works on at this time."""
FOLLOWERS_MS: Final = 1_000
"""Followers get a raised log start offset with their next Fetch, and have checkpointed it by
then."""


def expiration_pass(
    settings: PartitionSettings,
    own_copies: OwnCopies,
    *,
    broker_id: int,
    copy_max_ms: int,
    gate: StoreGate,
) -> Task[PassResult]:
    """One pass over a led partition; a retriable error of the store ends it."""
    own_copies.look()
    facts: LogFacts = yield Validate()
    if facts.hole() is not None:
        return PassResult(unhealthy=hole_of(facts).reason)
    yield Carry(facts.log.log_start_offset)
    now_ms: int = yield WallMs()
    members = facts.log.members_log_start
    move = log_start_by_retention(facts, settings, now_ms)
    if move is not None:
        taken: bool = yield MoveStart(move.offset, move.reason)
        if not taken:
            return PassResult(unhealthy=HealthReason.LOG_START_REFUSED.text(offset=move.offset))
        # The next pass carries the new log start, and its description includes followers that join
        # now.
        return PassResult(again_in_ms=0 if members >= move.offset else FOLLOWERS_MS)
    # A follower that leads next must know that the deleted offsets are gone.
    due = deletions(facts, min(facts.log.log_start_offset, members), own_copies.seen())
    yield Measure(
        delete_lag_segments=len(due),
        delete_lag_bytes=sum(deletion.metadata.segment_size_bytes for deletion in due),
    )
    errors = 0
    for number, deletion in enumerate(due):
        at_ms: int = yield WallMs()
        if number > 0 and at_ms - now_ms >= PASS_MS:
            return PassResult(store_errors=errors, again_in_ms=None if errors else 0)
        try:
            is_held = yield from _delete(
                deletion, facts.log.metadata_offset, broker_id, copy_max_ms, gate
            )
        except (RetriableRemoteStorageError, CallHangsError):
            raise  # the next call would find the same
        except RemoteStorageError:
            errors += 1  # counted and logged by the performer; the next pass tries again
        else:
            if is_held:
                return PassResult(store_errors=errors, is_held=True)
    return PassResult(store_errors=errors)


def _delete(
    deletion: Deletion,
    metadata_offset: int,
    broker_id: int,
    copy_max_ms: int,
    gate: StoreGate,
) -> Task[bool]:
    """Do the steps that are due for one segment; returns whether they must wait for the store."""
    metadata = deletion.metadata
    seen_ms: int = yield StartedSeenMs(metadata)
    now_ms: int = yield WallMs()
    is_due = deletion_is_due(seen_ms, now_ms, copy_max_ms)
    deleted: bool = yield WasDeletedOnce(metadata.id.id)
    has_begun = metadata.state is SegmentState.DELETE_SEGMENT_STARTED
    needs_store = is_due or not deleted
    with gate.trying(metadata.id.topic_id_partition) if needs_store else nullcontext(True) as may:
        if not may:
            return True
        if not has_begun:
            begun = SegmentState.DELETE_SEGMENT_STARTED
            yield from _write(metadata, begun, metadata_offset, broker_id)
        if needs_store:
            yield DeleteObjects(metadata)
            gate.worked()
    if is_due:
        finished = SegmentState.DELETE_SEGMENT_FINISHED
        yield from _write(metadata, finished, metadata_offset, broker_id)
    return False


def _write(
    metadata: RemoteLogSegmentMetadata, state: SegmentState, metadata_offset: int, broker_id: int
) -> Task[None]:
    now_ms: int = yield WallMs()
    begins = state is SegmentState.DELETE_SEGMENT_STARTED
    update = SegmentUpdate(
        metadata.id,
        state,
        now_ms,
        broker_id,
        metadata.custom_metadata,
        seen_state=metadata.state if begins else None,
    )
    yield UpdateState(update, metadata_offset)
