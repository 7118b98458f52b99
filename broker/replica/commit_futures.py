"""Who waits until an append is committed."""

import asyncio
from asyncio import Future


class CommitFutures:
    """Futures by the end offset that the high watermark has to reach.

    Attributes:
        waiting: end offset (exclusive) and future, in the order in which they came.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Future[None]]] = []

    def add(self, end_offset: int) -> Future[None]:
        """A future that is done when everything below `end_offset` (exclusive) is committed."""
        future: Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((end_offset, future))
        return future

    def reached(self, high_watermark: int) -> None:
        """The high watermark has moved there."""
        waiting = self.waiting
        self.waiting = [each for each in waiting if each[0] > high_watermark]
        for end_offset, future in waiting:
            if end_offset <= high_watermark and not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """What they wait for will not come."""
        waiting, self.waiting = self.waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
