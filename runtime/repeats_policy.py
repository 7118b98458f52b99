"""Decides which lines of repeated events are logged: at most one a minute for each key.

A key names one call and one subject, such as a file, a partition or an address. The decisions are
pure: the time comes in as `now_ms`, and nothing here logs, locks or reads a clock. `LimitedLog` and
`Outage` in `runtime.log_context` log by them.

Invariants:
    Two lines of one key are at least `REPEAT_MS` apart, the line of an end excepted.
    Each event has a line of its own, or the next line of its key counts it.
    The end of a failure is logged exactly if a line of that failure was logged.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

REPEAT_MS: Final = 60_000
"""The least time between two lines of one key."""
KEYS_MAX: Final = 1_000
"""Most keys that one `Repeats` remembers; the key logged longest ago goes first."""


@dataclass(slots=True)
class _Key:
    next_ms: int  # first time at which the next line may be logged
    left_out: int = 0  # since the last line
    failure: Hashable | None = None  # the logged failure that has not ended


class Repeats:
    """Remembers for each key when its last line was logged. Not safe for several threads.

    A forgotten key loses its count of lines left out, and the end of its failure is not logged.
    """

    __slots__ = ("_keys", "_keys_max")

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        """Remember nothing yet, and `keys_max` keys at most."""
        self._keys: OrderedDict[Hashable, _Key] = OrderedDict()
        self._keys_max = keys_max

    def occurred(self, key: Hashable, now_ms: int) -> int | None:
        """Count an event, and decide whether its line is logged.

        Args:
            key: call and subject.
            now_ms: monotonic clock.

        Returns:
            None: the line is left out. Else the number of lines left out since the last one.
        """
        known = self._keys.get(key)
        if known is None:
            self._keys[key] = _Key(now_ms + REPEAT_MS)
            if len(self._keys) > self._keys_max:
                self._keys.popitem(last=False)
            return 0
        if now_ms < known.next_ms:
            known.left_out += 1
            return None
        left_out = known.left_out
        known.next_ms, known.left_out = now_ms + REPEAT_MS, 0
        self._keys.move_to_end(key)
        return left_out

    def failed(self, key: Hashable, now_ms: int, cause: Hashable = "") -> int | None:
        """Count a failure, and decide whether its line is logged: once a cause until it ends.

        Args:
            key: call and subject.
            now_ms: monotonic clock.
            cause: another cause than the logged one is an event of its own; never None.

        Returns:
            As `occurred`.
        """
        known = self._keys.get(key)
        if known is not None and known.failure == cause:
            known.left_out += 1
            return None
        left_out = self.occurred(key, now_ms)
        if left_out is not None:
            self._keys[key].failure = cause
        return left_out

    def ended(self, key: Hashable) -> bool:
        """Decide whether the end of a key's failure is logged.

        An end without a logged begin would add a line for each of many short failures. The line of
        the end stands for the lines that were left out since the begin.
        """
        known = self._keys.get(key)
        if known is None or known.failure is None:
            return False
        known.failure, known.left_out = None, 0
        return True


def with_left_out(line: str, left_out: int) -> str:
    """Return a line with the number of lines left out before it, unless that is 0."""
    return f"{line} (lines left out: {left_out})" if left_out else line
