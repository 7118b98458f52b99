"""What the thread that reads hands to the one that decodes: whole batches and what they are."""

from dataclasses import dataclass

from pipeline.decode.group import Keep, Origin


@dataclass(frozen=True, slots=True)
class Group:
    """Whole batches that lie in memory.

    Attributes:
        data: valid until the second next group is asked for: its buffer is used again.
        origin: where they come from.
        keep: which of their rows are wanted.
    """

    data: memoryview
    origin: Origin
    keep: Keep


class TwoBuffers:
    """Memory for groups: one is filled while the other one is decoded."""

    def __init__(self) -> None:
        self._filling, self._decoding = bytearray(), bytearray()

    def filling(self, size_bytes: int) -> memoryview:
        """The buffer that is filled now, at least `size_bytes` long; a larger one is a new one."""
        if len(self._filling) < size_bytes:
            self._filling = bytearray(size_bytes)
        return memoryview(self._filling)[:size_bytes]

    def swap(self) -> None:
        """The group that was filled is handed out; the one before it is done with."""
        self._filling, self._decoding = self._decoding, self._filling
