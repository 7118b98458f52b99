"""Which old segments may go: pure arithmetic over facts.

Segments go oldest first and without gaps. A segment may go if everything in it is below the high
watermark and (a) wholly below the log start, or (b) too old or too much, and, where the topic is
copied to the remote tier, known to lie there durably. Equality counts the same way in both tiers:
a segment goes when its age is *above* the limit and when *removing* it keeps at least the size
limit.

What a topic keeps remotely is given up by the tier alone (RaiseLogStart), also when nothing more is
copied (`remote.log.copy.disable`): a local segment that is not copied is younger than some remote
one perhaps, and a log start raised over it would delete both. Where nothing is remote the tier
raises it over local segments.

What is held for followers (`hold.py`) stays although its local retention is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from local_log.config import LONG_MAX, LogConfig


class Reason(Enum):
    """Why a segment goes."""

    LOG_START = "log start moved past it"
    TIME = "older than retention.ms"
    SIZE = "log larger than retention.bytes"
    LOCAL_TIME = "copied and older than local.retention.ms"
    LOCAL_SIZE = "copied and local log larger than local.retention.bytes"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as retention sees it.

    Attributes:
        base_offset: first offset, inclusive.
        end_offset: the next segment's base or the log end, exclusive.
        timestamp_ms: the time its age is counted from.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The rest of what retention must know.

    Attributes:
        copied_through: last offset (inclusive) durably in the remote tier, -1 if unknown.
        held_from: segments that end above it are held for followers; LONG_MAX: none are.
    """

    log_start_offset: int
    high_watermark: int
    copied_through: int
    now_ms: int
    held_from: int = LONG_MAX


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What to do now.

    Attributes:
        drop: reasons, one for each of the oldest segments that go.
        roll_active: the active segment must be closed first (it goes too, or must be copied).
        raises_log_start: dropping loses offsets: the log start moves to the first segment left.
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
    """Decide for one log.

    Args:
        segments: all of them, oldest first; the last one is active. They are asked for up to the
            first that stays, and the active one.
        log: offsets and the time.
        config: the topic's settings.
        size_bytes: of all segments together; None: their sum.
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
        # It must be copied before it may go, and only closed segments are copied.
        roll_active = _expired(active, active.size_bytes, log.now_ms, config) is not None
    raises = not tiered and any(reason is not Reason.LOG_START for reason in reasons)
    return RetentionDecision(tuple(reasons), roll_active, raises)


def is_held(reason: Reason, end_offset: int, held_from: int) -> bool:
    """Whether a segment stays for followers that would go for this reason.

    Args:
        reason: why it would go.
        end_offset: of the segment, exclusive.
        held_from: see `RetentionFacts`.
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
