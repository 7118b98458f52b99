"""What the passes of one ownership share: one leader epoch of one partition."""

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
    """A call of the plugin was given up, and with it the run; or too many hang to begin another.

    Not a retriable error: of one partition alone it says nothing of the store.
    """


class HangingCalls:
    """Those of one ownership; from any thread.

    Each holds a thread. A pass whose call hangs is tried again, as another connection to the
    store may do better; but not without end, or one partition would take half of the pool, and
    the tier end itself over it (`rlm.service`).
    """

    __slots__ = ("_count", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    def check(self) -> None:
        """Raise CallHangsError where so many hang that no further one may begin."""
        if self._count >= HANGING_MAX:
            raise CallHangsError(f"{self._count} calls of the plugin hang, and no other begins")

    @contextmanager
    def watched(self, on_hang: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Run a call in the block, which gets what is to be called when it is given up.

        Then the call counts, and `on_hang` is called; nothing happens once the block has ended.
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
    """Ids of the copies this tier is running for one partition.

    The copying thread begins and ends them while an expiring thread looks. Its look at the metadata
    and its look here are not one moment: a copy may be STARTED in the first and have ended,
    FINISHED and told to the broker, before the second. So one that ends while somebody looks counts
    as running until that look is over.
    """

    __slots__ = ("_ended", "_running")

    def __init__(self) -> None:
        self._running: set[bytes] = set()
        self._ended: set[bytes] = set()

    def begin(self, segment_id: bytes) -> None:
        """A copy begins: called before its STARTED is sent."""
        self._running.add(segment_id)

    def end(self, segment_id: bytes) -> None:
        """The copy is over, in whatever way."""
        self._ended.add(segment_id)  # before it leaves the other set: it is never in none
        self._running.discard(segment_id)

    def look(self) -> None:
        """Begin a look: call it before asking which segments there are."""
        self._ended.clear()

    def seen(self) -> frozenset[bytes]:
        """All that ran at some moment since `look`."""
        return frozenset(self._running.copy() | self._ended.copy())


@dataclass(slots=True)
class Ownership:
    """One leader epoch (and incarnation) of one partition: what its tasks share."""

    partition: TopicIdPartition
    fence: Fence
    cancellation: Cancellation = field(default_factory=Cancellation)
    own_copies: OwnCopies = field(default_factory=OwnCopies)
    deleted_once: set[bytes] = field(default_factory=set)
    hanging: HangingCalls = field(default_factory=HangingCalls)
    last_report: messages.Report | None = None
