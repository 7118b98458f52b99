"""One catch-up of a partition's metadata for all waiters: passes, reads, bootstraps.

Belongs to the manager's thread. A catch-up counts only for waiters that came before it began; later
ones share the next catch-up. So while the metadata topic is unreachable, one catch-up of each
partition is under way, however many waiters come and give up.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from kafka_protocol.types import TopicIdPartition
from rlm.workers import Workers
from rlmm.api import RemoteLogMetadataManager

Waiter = Callable[[BaseException | None], None]
"""Called once, with the reason why the metadata is not caught up, None if it is."""


@dataclass(slots=True)
class _Waiting:
    """The waiters of the catch-up that is under way, and of the one after it."""

    running: dict[Waiter, None]
    next: dict[Waiter, None] = field(default_factory=dict)


class CatchUps:
    """The catch-ups that are under way, with their waiters."""

    def __init__(self, metadata: RemoteLogMetadataManager, workers: Workers) -> None:
        self._metadata, self._workers = metadata, workers
        self._waiting: dict[TopicIdPartition, _Waiting] = {}

    def join(self, tip: TopicIdPartition, waiter: Waiter) -> None:
        """Call `waiter` once all that the metadata topic holds at this call has been read."""
        waiting = self._waiting.get(tip)
        if waiting is None:
            self._begin(tip, {waiter: None})
        else:
            waiting.next[waiter] = None

    def leave(self, tip: TopicIdPartition, waiter: Waiter) -> None:
        """Do not call `waiter` any more; it need not be waiting."""
        waiting = self._waiting.get(tip)
        if waiting is not None:
            waiting.running.pop(waiter, None)
            waiting.next.pop(waiter, None)

    def _begin(self, tip: TopicIdPartition, waiters: dict[Waiter, None]) -> None:
        self._waiting[tip] = _Waiting(waiters)

        def ended(done: "Future[None]") -> None:
            self._workers.post(partial(self._ended, tip, done.exception()))

        self._metadata.catch_up(tip).add_done_callback(ended)

    def _ended(self, tip: TopicIdPartition, error: BaseException | None) -> None:
        waiting = self._waiting.pop(tip)
        if waiting.next:
            self._begin(tip, waiting.next)
        for waiter in waiting.running:
            waiter(error)
