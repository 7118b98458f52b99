"""Whose turn it is to copy, and how long a turn lasts. Pure.

Segments may close faster than copiers get through them, for ever or after an outage. So a pass ends
after a few segments and its partition waits again: by rounds. In a round each waiting partition is
served once, those with the most bytes to copy first. A large lag therefore gets on earlier, and a
small one waits at most for one turn of each other partition, whatever their lags.
"""

from dataclasses import dataclass
from typing import Final

TURN_SEGMENTS_MAX: Final = 4
TURN_MS: Final = 10_000
"""A turn with segments of a gigabyte ends after the first that takes so long."""


@dataclass(slots=True)
class CopyTurn:
    """What one partition's place among those that wait depends on.

    Attributes:
        lag_bytes: what its last pass left; None before the first, which is served as the largest.
        round: in which it was served last.
    """

    lag_bytes: int | None = None
    round: int = -1


def place(turn: CopyTurn, present_round: int) -> tuple[int, float]:
    """Where to stand among those that wait: the least is served first.

    Args:
        turn: of the partition.
        present_round: that of the pass which began last.

    Returns:
        The round in which it is served next, then its place in it.
    """
    lag = float("inf") if turn.lag_bytes is None else turn.lag_bytes
    return max(present_round, turn.round + 1), -lag


def is_over(copied: int, took_ms: int) -> bool:
    """Whether a turn with so many copied segments ends although more is to be copied."""
    return copied >= TURN_SEGMENTS_MAX or (copied > 0 and took_ms >= TURN_MS)
