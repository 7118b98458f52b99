"""Running calls of the storage plugin, with their start times, and whether a new one may start.

A call cannot be stopped from outside its thread. So each call is registered. A partition's
cancellation lets no further call start. A call past its limit counts as abandoned while it runs,
with the thread that it holds. A copy that runs past the copy maximum makes the tier end itself.

While the store must not be written to (`rlm.maintenance.claim`), no call that writes to it starts,
for any partition or deleted topic.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_protocol.errors import TidemarkError
from rsm_plugins.api import RetriableRemoteStorageError
from runtime.clock import Clock


class StoreClosedError(RetriableRemoteStorageError):
    """The store must not be written to now (`PluginCalls.let_write`)."""


class TaskCancelledError(TidemarkError):
    """The partition was unassigned, or its leader epoch is over."""


class Cancellation:
    """Signals to the tasks of one ownership that it is over; from any thread."""

    __slots__ = ("_changed", "_lock", "cancelled")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.cancelled = False

    def cancel(self) -> None:
        """End the ownership: when this returns, none of its plugin calls starts any more."""
        with self._lock:
            self.cancelled = True
            self._changed.notify_all()

    def wait(self, wait_ms: int) -> None:
        """Wait in the calling thread until the time has passed or it is cancelled."""
        with self._lock:
            self._changed.wait_for(lambda: self.cancelled, wait_ms / 1_000)

    def starting(self, register: Callable[[], int]) -> int:
        """Register a call, unless cancelled.

        Raises:
            TaskCancelledError: It must not start.
        """
        with self._lock:
            if self.cancelled:
                raise TaskCancelledError("this ownership is over")
            return register()


@dataclass(slots=True)
class _Call:
    pool: str
    kind: str
    started_ms: int
    limit_ms: int
    thread_id: int
    on_overdue: Callable[[], None]
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Overdue:
    """A call that has just been found past its limit.

    Attributes:
        thread_id: The thread that it holds.
        abandoned_in_pool: Calls of the pool that are past their limits now, this one included.
        tell: Notifies the waiter of the call that it is abandoned.
    """

    pool: str
    kind: str
    running_ms: int
    thread_id: int
    abandoned_in_pool: int
    tell: Callable[[], None]


def _nobody() -> None:
    """The default listener, which does nothing."""


class PluginCalls:
    """All running calls of this process.

    Attributes:
        store_is_missing: The store holds no claim, and held one before: earlier copies may be gone.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._next = 0
        self._may_write = True
        self.store_is_missing = False

    @property
    def may_write(self) -> bool:
        """True if calls that write to the store may start; asked from any thread."""
        return self._may_write

    def let_write(self, allowed: bool) -> None:
        """Permit or forbid calls that write to the store.

        When this returns after False, no further one starts.
        """
        with self._lock:
            self._may_write = allowed

    def check_may_write(self) -> None:
        """Raise StoreClosedError if calls that write to the store are forbidden."""
        if not self._may_write:
            raise StoreClosedError("the claim on the store is not ours, or not yet")

    @contextmanager
    def call(
        self,
        pool: str,
        kind: str,
        limit_ms: int,
        cancellation: Cancellation | None = None,
        on_overdue: Callable[[], None] = _nobody,
        *,
        writes: bool = False,
    ) -> Iterator[None]:
        """Register a call for as long as the block runs.

        `on_overdue` becomes `Overdue.tell`; `writes`: the call copies or deletes objects.

        Raises:
            TaskCancelledError: The ownership is over; the block does not run.
            StoreClosedError: The store must not be written to; the block does not run.
        """

        def register() -> int:
            with self._lock:
                if writes:
                    self.check_may_write()
                self._next += 1
                now_ms = self._clock.monotonic_ms()
                me = threading.get_ident()
                self._calls[self._next] = _Call(pool, kind, now_ms, limit_ms, me, on_overdue)
                return self._next

        number = register() if cancellation is None else cancellation.starting(register)
        try:
            yield
        finally:
            with self._lock:
                del self._calls[number]

    def newly_overdue(self) -> list[Overdue]:
        """Calls that passed their limit since the last call of this."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            fresh = [
                call
                for call in self._calls.values()
                if not call.abandoned and now_ms - call.started_ms > call.limit_ms
            ]
            for call in fresh:
                call.abandoned = True
            return [
                Overdue(
                    call.pool,
                    call.kind,
                    now_ms - call.started_ms,
                    call.thread_id,
                    self._abandoned(call.pool),
                    call.on_overdue,
                )
                for call in fresh
            ]

    def _abandoned(self, pool: str | None = None) -> int:
        return sum(
            1
            for call in self._calls.values()
            if call.abandoned and (pool is None or call.pool == pool)
        )

    @property
    def abandoned(self) -> int:
        """Calls past their limit that still run."""
        with self._lock:
            return self._abandoned()

    @property
    def running(self) -> int:
        """Number of calls that run now."""
        with self._lock:
            return len(self._calls)
