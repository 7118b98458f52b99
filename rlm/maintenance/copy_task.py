"""Copies closed segments, oldest first, one after the other.

Write order (docs/tiering.md §3, "copy"): OpenSegment, STARTED under a new id, objects, read-back of
the objects, FINISHED with the custom metadata, CopiedThrough. A crash after any of them leaves at
most a STARTED id. A later expiration pass deletes it, and the range is copied again under another
id. So while the store is away only one partition tries (`rlm.maintenance.store_gate`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import (
    ClosedLocalSegment,
    CopiedThrough,
    Loss,
    LossFound,
    PartitionSettings,
    Restoration,
    ValidationWithdrawn,
)
from rlm.maintenance.copy_policy import (
    PASS_SEGMENTS_MAX,
    is_over,
    lag,
    next_to_copy,
    started_metadata,
)
from rlm.maintenance.effects import (
    AddStarted,
    BeginCopy,
    Carry,
    DeleteObjects,
    LocalSegment,
    Measure,
    OpenLocal,
    PassResult,
    Pause,
    PutObjects,
    ReadBack,
    Report,
    Task,
    UpdateState,
    Validate,
    WallMs,
)
from rlm.maintenance.log_facts import LogFacts
from rlm.maintenance.log_validation import hole_of
from rlm.maintenance.read_back import not_given_back
from rlm.maintenance.store_gate import StoreGate
from rlmm.api import SegmentUpdate
from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.segment import (
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)


class CustomMetadataTooLargeError(RemoteStorageError):
    """The plugin returned more custom metadata than is allowed."""


def copied_through_report(facts: LogFacts) -> CopiedThrough:
    """The report of a sound log: how far the broker may rely on copies for local expiry."""
    run = facts.copied_through()
    log = facts.log
    return CopiedThrough(
        log.topic_id,
        log.partition,
        log.leader_epoch,
        last_offset=-1 if run is None else run.last_offset,
        last_offset_epoch=-1 if run is None else run.leader_epoch,
        remote_start=-1 if facts.remote_start is None else facts.remote_start,
        remote_bytes=facts.remote_bytes,
    )


def nothing_copied_report(facts: LogFacts) -> CopiedThrough:
    """The report of a validated log without copies to rely on for local expiry."""
    log = facts.log
    return CopiedThrough(
        log.topic_id,
        log.partition,
        log.leader_epoch,
        last_offset=-1,
        last_offset_epoch=-1,
        remote_start=-1,
        remote_bytes=0,
    )


def loss_report(facts: LogFacts, loss: Loss, restoration: Restoration | None = None) -> LossFound:
    """The report of a loss: nothing counts as remote, so the broker expires nothing locally."""
    log = facts.log
    return LossFound(log.topic_id, log.partition, log.leader_epoch, loss, restoration)


def withdraw_validation(topic_id: bytes, partition: int, leader_epoch: int) -> Task[PassResult]:
    """Withdraw all earlier reports of the partition."""
    yield Report(ValidationWithdrawn(topic_id, partition, leader_epoch))
    return PassResult()


REFUSED_REPORT_AGAIN_MS: Final = 1_000
READ_BACK_FIRST_PAUSE_MS: Final = 100
READ_BACK_PAUSE_MAX_MS: Final = 30_000
READ_BACK_MS: Final = 10_000
"""Stores with eventual consistency need less."""
READ_BACK_MAX_MS: Final = 120_000
"""Bound of the doubled wait: a recovered store may show copies late."""


def _for_ever() -> bool:
    """Settings that do not change."""
    return True


def copy_pass(
    partition: TopicIdPartition,
    settings: PartitionSettings,
    *,
    broker_id: int,
    custom_metadata_bytes_max: int,
    throttle_ms: Callable[[int], int],
    gate: StoreGate,
    is_current: Callable[[], bool] = _for_ever,
) -> Task[PassResult]:
    """Copy up to one slice of segments; each is reported before the next is chosen.

    The pass ends early when the topic's settings change.

    Args:
        partition: The led partition.
        settings: Settings of its topic at the beginning of the pass.
        broker_id: Written into the records.
        custom_metadata_bytes_max: A plugin that returns more fails the copy.
        throttle_ms: Wait in ms that the quota demands for a copy of so many bytes; 0: none.
        gate: Admits tries of the store; a first success after an outage ends the slice.
        is_current: Returns True if `settings` are still those of the topic.
    """
    began_ms: int = yield WallMs()
    copied = 0
    while True:
        facts: LogFacts = yield Validate()
        if facts.hole() is not None:
            unhealthy = hole_of(facts)
            # The broker must not rely on earlier reports.
            yield Report(loss_report(facts, unhealthy.loss))
            return PassResult(unhealthy=unhealthy.reason)
        taken: bool = yield Report(copied_through_report(facts))
        if not taken:
            # The log has changed since it was validated. The broker still uses the end at which the
            # log was opened. So a record that is announced now could look like the proof of a loss.
            return PassResult(again_in_ms=REFUSED_REPORT_AGAIN_MS)
        yield Carry(facts.log.log_start_offset)
        segments, size_bytes = lag(facts, settings)
        yield Measure(
            copy_lag_segments=segments,
            copy_lag_bytes=size_bytes,
            remote_bytes=facts.remote_bytes,
            remote_segments=len(facts.remote),
        )
        now_ms: int = yield WallMs()
        if not is_current():
            return PassResult(again_in_ms=0, lag_bytes=size_bytes)
        segment = next_to_copy(facts, settings, now_ms)
        if segment is None:
            return PassResult(lag_bytes=size_bytes)
        if is_over(copied, now_ms - began_ms):
            return PassResult(again_in_ms=0, lag_bytes=size_bytes)
        with gate.trying(partition) as may_try:
            if not may_try:
                return PassResult(is_held=True, lag_bytes=size_bytes)
            if throttle_ms(segment.size_bytes) > 0:
                return PassResult(is_throttled=True, lag_bytes=size_bytes)
            ended_outage: bool = yield from _copy_one(
                partition, facts, segment, broker_id, custom_metadata_bytes_max, gate
            )
        # others waiting for the store resume at the end of the pass
        copied += PASS_SEGMENTS_MAX if ended_outage else 1


def _copy_one(
    partition: TopicIdPartition,
    facts: LogFacts,
    segment: ClosedLocalSegment,
    broker_id: int,
    custom_metadata_bytes_max: int,
    gate: StoreGate,
) -> Task[bool]:
    """Copy one segment; returns whether the store had failed before."""
    opened: LocalSegment = yield OpenLocal(segment.base_offset)
    # The copy maximum counts from here, before STARTED is sent: other tiers count from when they
    # read it.
    new_id: bytes = yield BeginCopy()
    now_ms: int = yield WallMs()
    metadata = started_metadata(
        facts,
        segment,
        id=RemoteLogSegmentId(partition, new_id),
        size_bytes=opened.answer.size_bytes,
        txn_index_empty=opened.answer.transaction_index_is_empty,
        broker_id=broker_id,
        now_ms=now_ms,
    )
    metadata_offset = facts.log.metadata_offset
    yield AddStarted(metadata, metadata_offset)
    custom: bytes | None = yield PutObjects(metadata, opened.data)
    if custom is not None and len(custom) > custom_metadata_bytes_max:
        # Now, and with it: no record will ever hold it, and the plugin may need it to find the
        # objects.
        yield DeleteObjects(replace(metadata, custom_metadata=custom))
        raise CustomMetadataTooLargeError(
            f"custom metadata of {len(custom)} bytes,"
            f" remote.log.metadata.custom.metadata.max.bytes is {custom_metadata_bytes_max}"
        )
    yield from _see_it_there(replace(metadata, custom_metadata=custom), opened.data, gate)
    ended_outage = gate.worked()
    finished_ms: int = yield WallMs()
    finished = SegmentState.COPY_SEGMENT_FINISHED
    yield UpdateState(
        SegmentUpdate(metadata.id, finished, finished_ms, broker_id, custom), metadata_offset
    )
    return ended_outage


def _see_it_there(
    metadata: RemoteLogSegmentMetadata, data: LogSegmentData, gate: StoreGate
) -> Task[None]:
    """Read the copy back; repeat for as long as the store may need to show it.

    After that the copy is lost if the store has shown another copy since; else the store fails. The
    range is copied again under another id. The copy maximum may end the wait sooner.
    """
    waited_ms, pause_ms, since = 0, READ_BACK_FIRST_PAUSE_MS, gate.successes
    wait_max_ms = min(READ_BACK_MS << min(gate.failed_probes, 8), READ_BACK_MAX_MS)
    while True:
        missing: str = yield ReadBack(metadata, data, pause_ms)
        if not missing:
            return
        if waited_ms >= wait_max_ms:
            if gate.successes != since:
                raise not_given_back(missing)
            seconds = waited_ms // 1_000
            raise RetriableRemoteStorageError(
                f"a copy is not found in the store for {seconds} s: {missing}"
            )
        yield Pause(pause_ms)
        waited_ms += pause_ms
        pause_ms = min(2 * pause_ms, READ_BACK_PAUSE_MAX_MS)
