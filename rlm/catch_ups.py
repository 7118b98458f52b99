"""Followers' passes, reads and bootstraps wait until the metadata are caught up: one catch-up each.

Belongs to the owner's thread. A catch-up of a partition counts only for those that came before it
began; those that come later share the next one. So as long as the metadata topic is away one
catch-up of each partition is under way, however many come and give up.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from kafka_protocol.types import TopicIdPartition
from rlm.workers import Workers
from rlmm.api import RemoteLogMetadataManager

Waiter = Callable[[BaseException | None], None]
"""Called once, with why the metadata could not be caught up; None: they are."""


@dataclass(slots=True)
class _Waiting:
    """Who waits for the catch-up that is under way, and for the one after it."""

    running: dict[Waiter, None]
    next: dict[Waiter, None] = field(default_factory=dict)


class CatchUps:
    """The catch-ups that are under way, and who waits for them."""

    def __init__(self, metadata: RemoteLogMetadataManager, workers: Workers) -> None:
        self._metadata, self._workers = metadata, workers
        self._waiting: dict[TopicIdPartition, _Waiting] = {}

    def join(self, tip: TopicIdPartition, waiter: Waiter) -> None:
        """Have `waiter` called when all is read that the metadata topic holds now."""
        waiting = self._waiting.get(tip)
        if waiting is None:
            self._begin(tip, {waiter: None})
        else:
            waiting.next[waiter] = None

    def leave(self, tip: TopicIdPartition, waiter: Waiter) -> None:
        """Wait no longer; fine for one that does not."""
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
