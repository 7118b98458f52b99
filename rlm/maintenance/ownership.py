"""Shared state of the passes of one ownership: one leader epoch of one partition."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from kafka_protocol.types import TopicIdPartition
from rlm.link import messages
from rlm.plugin_calls import Cancellation
from rlmm.api import Fence
from rsm_plugins.api import RemoteStorageError

HANGING_MAX: Final = 2


class CallHangsError(RemoteStorageError):
    """A plugin call was abandoned, and its pass with it; or too many hang to begin another.

    Not a retriable error: one partition alone shows nothing about the store.
    """


class HangingCalls:
    """The hanging calls of one ownership; from any thread.

    Each holds a thread. A pass whose call hangs is tried again, since another connection to the
    store may work. The number of tries is bounded: one partition could take half of the pool, upon
    which the tier ends itself (`rlm.service`).
    """

    __slots__ = ("_count", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    def check(self) -> None:
        """Raise CallHangsError if too many calls hang for a further one to begin."""
        if self._count >= HANGING_MAX:
            raise CallHangsError(f"{self._count} calls of the plugin hang, and no other begins")

    @contextmanager
    def watched(self, on_hang: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Run a call in the block, which gets a function to call when the call is abandoned.

        The function counts the call as hanging and calls `on_hang`. After the end of the block it
        does nothing.
        """
        has_ended = is_counted = False

        def hangs() -> None:
            nonlocal is_counted
            with self._lock:
                if has_ended or is_counted:
                    return
                is_counted = True
                self._count += 1
            on_hang()

        try:
            yield hangs
        finally:
            with self._lock:
                has_ended = True
                self._count -= is_counted


class OwnCopies:
    """Ids of the copies that this tier is running for one partition.

    The copying thread begins and ends them while an expiring thread reads them. That thread reads
    the metadata first and the ids later. A copy may be STARTED at the first moment, and FINISHED,
    reported and ended before the second. So a copy that ends during a read counts as running until
    the read is over.
    """

    __slots__ = ("_ended", "_running")

    def __init__(self) -> None:
        self._running: set[bytes] = set()
        self._ended: set[bytes] = set()

    def begin(self, segment_id: bytes) -> None:
        """A copy begins: called before its STARTED is sent."""
        self._running.add(segment_id)

    def end(self, segment_id: bytes) -> None:
        """The copy has ended, successfully or not."""
        self._ended.add(segment_id)  # before it leaves the other set: it is always in one of them
        self._running.discard(segment_id)

    def look(self) -> None:
        """Begin a look; call it before listing the segments."""
        self._ended.clear()

    def seen(self) -> frozenset[bytes]:
        """Ids of all copies that ran at some moment since `look`."""
        return frozenset(self._running.copy() | self._ended.copy())


@dataclass(slots=True)
class Ownership:
    """One leader epoch (and incarnation) of one partition: shared by its tasks."""

    partition: TopicIdPartition
    fence: Fence
    cancellation: Cancellation = field(default_factory=Cancellation)
    own_copies: OwnCopies = field(default_factory=OwnCopies)
    deleted_once: set[bytes] = field(default_factory=set)
    hanging: HangingCalls = field(default_factory=HangingCalls)
    last_report: messages.Report | None = None
