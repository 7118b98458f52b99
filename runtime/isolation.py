"""A process that is cut off from others, for tests: connections end, and new ones come to nothing.

Both ends of what this process has with others go through here: the connections that it opens, and
those that its listeners accept. It is cut off at once and as a whole, whatever the others do.
"""

from collections.abc import Callable

End = Callable[[], None]


class Isolation:
    """Whether this process is cut off; use it on the event loop's thread only.

    Attributes:
        is_cut: it opens no connection to another process, and listeners accept none.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self._kept: frozenset[str] = frozenset()
        self._ends: dict[object, End] = {}

    def cut(self, kept: frozenset[str] = frozenset()) -> None:
        """End all connections but those of the listeners `kept`, and let no new one begin."""
        self.is_cut, self._kept = True, kept
        for end in list(self._ends.values()):
            end()

    def heal(self) -> None:
        """Let connections begin again."""
        self.is_cut, self._kept = False, frozenset()

    def admits(self, listener_name: str) -> bool:
        """Whether a listener may have connections."""
        return not self.is_cut or listener_name in self._kept

    def add(self, holder: object, end: End) -> None:
        """Have `end` called at each cut; it ends what `holder` may not have then."""
        self._ends[holder] = end

    def discard(self, holder: object) -> None:
        """Forget what `add` was told; fine where it was told nothing."""
        self._ends.pop(holder, None)
