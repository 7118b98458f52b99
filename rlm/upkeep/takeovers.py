"""The garbage collector makes no full passes while thousands of partitions are taken over."""

from typing import Final

from runtime.collector import FullPasses

MANY: Final = 200
"""Partitions whose takeover is worth it."""
STUCK_TOLD: Final = 30
"""So often the same number is told before it counts as stuck: a store that is away, say."""


class Takeovers:
    """Follows how many partitions are still to be judged."""

    def __init__(self, passes: FullPasses) -> None:
        self._passes = passes
        self._left = self._same = 0
        self._is_many = False

    def told(self, left: int) -> None:
        """So many are left."""
        self._same = self._same + 1 if left == self._left else 0
        self._left = left
        is_many = left >= MANY or (self._is_many and left > 0)
        is_many = is_many and self._same < STUCK_TOLD
        if is_many and not self._is_many:
            self._passes.hold_back()
        elif self._is_many and not is_many:
            self._passes.leave_out_what_lives()
            self._passes.allow()
        self._is_many = is_many
