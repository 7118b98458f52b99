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
        self._buffers = [bytearray(), bytearray()]

    def next(self, size_bytes: int) -> memoryview:
        """The buffer that is free now, at least `size_bytes` long."""
        self._buffers.reverse()
        if len(self._buffers[0]) < size_bytes:
            self._buffers[0] = bytearray(size_bytes)
        return memoryview(self._buffers[0])[:size_bytes]
