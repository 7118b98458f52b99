"""When an idle leader writes a NoOp record, so that others see how far the log is.

DIFFERS: Kafka writes one each interval, whoever listens. Without another voter and without an
observer nobody learns anything from it.

Source: KIP-835.
"""

from dataclasses import dataclass
from typing import Final

OBSERVER_MEMORY_MS: Final = 5 * 60_000
"""An observer that has not fetched for so long does not count."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Who follows the log besides the leader.

    Attributes:
        has_other_voters: there is a voter that is not this node.
        observer_seen_ms: when an observer fetched last, by the monotonic clock; None: never.
    """

    has_other_voters: bool = False
    observer_seen_ms: int | None = None


def ms_before_no_op(
    audience: Audience, *, last_write_ms: int, now_ms: int, interval_ms: int
) -> int | None:
    """How long to wait before a NoOp record is due.

    Args:
        audience: as of now.
        last_write_ms: when the leader appended last, or began to lead.
        now_ms: by the same clock.
        interval_ms: `metadata.max.idle.interval.ms`.

    Returns:
        0: write one now. Else look again after so long. None: there is never one.
    """
    if interval_ms <= 0:
        return None
    seen_ms = audience.observer_seen_ms
    is_observed = seen_ms is not None and now_ms - seen_ms <= OBSERVER_MEMORY_MS
    if not audience.has_other_voters and not is_observed:
        return interval_ms
    return max(0, last_write_ms + interval_ms - now_ms)
