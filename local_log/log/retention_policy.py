"""Chooses the old segments to delete: pure arithmetic over facts.

Segments are deleted oldest first and without gaps, and only if they end at or below the high
watermark. In addition a segment must be (a) wholly below the log start, or (b) beyond a limit of
age or size. If the topic is copied to the remote tier, (b) requires that it is durably there.
Equality counts the same way in both tiers. By age a segment is deleted if it is *above* the limit.
By size it is deleted if the log *without* it keeps at least the size limit.

Only the tier gives up remote data of a topic (RaiseLogStart), also when nothing more is copied
(`remote.log.copy.disable`). A local segment that is not copied may be younger than a remote one,
and a log start raised over it would delete both. Without remote data the tier raises it over local
segments.

Segments held for followers (`hold.py`) stay although their local retention is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from local_log.config import LONG_MAX, LogConfig


class Reason(Enum):
    """Reason for deleting a segment."""

    LOG_START = "log start moved past it"
    TIME = "older than retention.ms"
    SIZE = "log larger than retention.bytes"
    LOCAL_TIME = "copied and older than local.retention.ms"
    LOCAL_SIZE = "copied and local log larger than local.retention.bytes"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Retention's view of a segment.

    Attributes:
        base_offset: First offset, inclusive.
        end_offset: Base offset of the next segment, or the log end, exclusive.
        timestamp_ms: Begin of its age.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """Retention's view of a log.

    Attributes:
        copied_through: Last offset (inclusive) durably in the remote tier, -1 if unknown.
        held_from: Segments that end above it are held for followers; LONG_MAX: none.
    """

    log_start_offset: int
    high_watermark: int
    copied_through: int
    now_ms: int
    held_from: int = LONG_MAX


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """Decision for one log.

    Attributes:
        drop: Reasons, one for each of the oldest segments to delete.
        roll_active: The active segment must be closed first (to be deleted or copied).
        raises_log_start: Offsets are lost: the log start moves to the first segment left.
    """

    drop: tuple[Reason, ...]
    roll_active: bool
    raises_log_start: bool


def decide(
    segments: Sequence[SegmentFacts],
    log: RetentionFacts,
    config: LogConfig,
    *,
    size_bytes: int | None = None,
) -> RetentionDecision:
    """Decide on one log.

    Args:
        segments: All of them, oldest first; the last one is active. Only those up to the first that
            stays are accessed, and the active one.
        log: Offsets and the time.
        config: The topic's settings.
        size_bytes: Of all segments together; None: computed.
    """
    tiered = config.remote_storage_enable
    reasons: list[Reason] = []
    if size_bytes is None:
        size_bytes = sum(segment.size_bytes for segment in segments)
    left_bytes = size_bytes
    for index, segment in enumerate(segments):
        is_active = index == len(segments) - 1
        if segment.end_offset > log.high_watermark or (is_active and segment.size_bytes == 0):
            break
        if segment.end_offset <= log.log_start_offset and not is_active:
            reason: Reason | None = Reason.LOG_START
        else:
            reason = _expired(segment, left_bytes, log.now_ms, config)
            if reason is not None and tiered and segment.end_offset - 1 > log.copied_through:
                reason = None
        if reason is None or is_held(reason, segment.end_offset, log.held_from):
            break
        reasons.append(reason)
        left_bytes -= segment.size_bytes
    active, roll_active = segments[-1], False
    if len(reasons) == len(segments):
        roll_active = True
    elif config.copies_to_remote and active.size_bytes and active.end_offset <= log.high_watermark:
        # It must be copied before its deletion, and only closed segments are copied.
        roll_active = _expired(active, active.size_bytes, log.now_ms, config) is not None
    raises = not tiered and any(reason is not Reason.LOG_START for reason in reasons)
    return RetentionDecision(tuple(reasons), roll_active, raises)


def is_held(reason: Reason, end_offset: int, held_from: int) -> bool:
    """True if a segment that would be deleted for this reason is held for followers.

    Args:
        reason: Of its deletion.
        end_offset: Of the segment, exclusive.
        held_from: See `RetentionFacts`.
    """
    return reason in (Reason.LOCAL_TIME, Reason.LOCAL_SIZE) and end_offset > held_from


def _expired(
    segment: SegmentFacts, left_bytes: int, now_ms: int, config: LogConfig
) -> Reason | None:
    if not config.deletes and not config.remote_storage_enable:
        return None
    tiered = config.copies_to_remote
    limit_ms = config.effective_local_retention_ms if tiered else config.retention_ms
    if limit_ms >= 0 and now_ms - segment.timestamp_ms > limit_ms:
        return Reason.LOCAL_TIME if tiered else Reason.TIME
    limit_bytes = config.effective_local_retention_bytes if tiered else config.retention_bytes
    if limit_bytes >= 0 and left_bytes - segment.size_bytes >= limit_bytes:
        return Reason.LOCAL_SIZE if tiered else Reason.SIZE
    return None
