"""Pauses that double, with jitter, up to a bound. Pure but for the dice handed in."""

from runtime.dice import Dice


class Backoff:
    """The pauses between tries of one thing."""

    __slots__ = ("_dice", "_failures", "_first_ms", "_jitter", "_max_ms")

    def __init__(self, first_ms: int, max_ms: int, jitter: float, dice: Dice) -> None:
        self._first_ms, self._max_ms, self._jitter, self._dice = first_ms, max_ms, jitter, dice
        self._failures = 0

    def next_ms(self) -> float:
        """The pause after one more failure: doubled, then moved by up to `jitter` of itself."""
        pause = min(self._first_ms * 2.0 ** min(self._failures, 62), float(self._max_ms))
        self._failures += 1
        return min(pause * (1 + self._jitter * (2 * self._dice.random() - 1)), self._max_ms)

    def reset(self) -> None:
        """It worked."""
        self._failures = 0
