"""Where the newest batches of the active segment lie.

Consumers at the end of a log are served from here, without a look at index or file.
"""

from typing import Final

GENERATION_BATCHES: Final = 512
"""The newest batches are remembered in two generations of so many; the older one goes whole."""


class RecentPlaces:
    """Position and size of batches, by base offset."""

    __slots__ = ("_newest", "_older")

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, int]] = {}
        self._older: dict[int, tuple[int, int]] = {}

    def note(self, base_offset: int, position: int, size: int) -> None:
        """A batch was written at `position`."""
        newest = self._newest
        if len(newest) >= GENERATION_BATCHES:
            self._older = newest
            newest = self._newest = {}
        newest[base_offset] = (position, size)

    def find(self, base_offset: int) -> tuple[int, int] | None:
        """Position and size of the batch that begins there, if it is remembered."""
        return self._newest.get(base_offset) or self._older.get(base_offset)

    def forget(self) -> None:
        """There is another active segment, or it was truncated."""
        self._newest = {}
        self._older = {}
