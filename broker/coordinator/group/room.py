"""How much more memory groups may take: one bound for all partitions that a broker coordinates.

Up to the bound everything is taken. A quarter above it is for groups that are there, so that new
ones cannot stop them; beyond that they may not grow either. What replaces something of the same
size always passes, and so does what ends something. Pure.
"""

from collections.abc import Callable
from typing import Final

_MARGIN: Final = 4
_UNBOUNDED: Final = 1 << 62


class Room:
    """Asked by each decision that would keep more.

    Attributes:
        most: `tidemark.group.bytes.max`.
        on_refused: told that something was refused for lack of memory, and whether it was of a
            group that is not there yet.
    """

    __slots__ = ("_kept", "most", "on_refused")

    def __init__(
        self,
        kept: Callable[[], int] = lambda: 0,
        most: int = _UNBOUNDED,
        on_refused: Callable[[bool], None] = lambda _is_new: None,
    ) -> None:
        """Begin with a bound; `kept` says what all groups take now."""
        self._kept, self.most, self.on_refused = kept, most, on_refused

    def left(self, *, is_new: bool) -> int:
        """How many bytes are left, below 0 where too many are taken.

        Args:
            is_new: for a group that is not there yet.
        """
        most = self.most if is_new else self.most + self.most // _MARGIN
        return most - self._kept()
