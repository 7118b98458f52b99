"""Loads from the store: one for each key, remembered failures, a bounded queue.

It belongs to the thread that owns the tier's state. A caller that receives a `Wait` gets one
callback when that key's state changes, or when its load may begin. Then it must ask again. A caller
that stops waiting calls `leave`. Loads ahead of a reader queue behind loads with a waiter, and are
dropped if their reader vanishes before they begin.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from threading import Lock
from typing import Any, Protocol, TypeVar

from rlm.read.chunk import DamagedChunkError
from rlm.read.segment_index import DamagedIndexError
from rlm.read.wait_queue import CALLS_MAX, FairQueue, Waiter, WaitQueue
from rlm.workers import READER_POOL, Workers
from rsm_plugins.api import RemoteObjectDamagedError
from runtime.clock import Clock
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

FIRST_RETRY_MS, RETRY_MAX_MS = 100, 5_000
MEMORY_POLL_MS = 500
"""No event reports free descriptors, so the first waiter tries again at this interval."""
DAMAGE_LIMIT = 2
"""A damaged object is fetched once more past the caches; then it counts as damaged for a while."""
FAILURES_MAX = 10_000
"""Bound of the remembered failures; any other key may be tried at once."""

T = TypeVar("T")

DAMAGE = (DamagedChunkError, DamagedIndexError, RemoteObjectDamagedError)


class Queued(Protocol):
    """A load in the queue."""

    urgent: bool

    @property
    def reader(self) -> str:
        """The reader that waits for it."""
        ...


class LoadQueue:
    """Two queues of loads: the urgent ones fairly between readers, the others oldest first.

    Urgent loads of the readers are served in turn, so that a reader of a thousand partitions delays
    only itself.

    The owner's thread adds, hurries and drops loads, and pool threads take them. Loads ahead never
    take all threads, so that a new reader finds a free one.
    """

    def __init__(self, ahead_max: Callable[[], int]) -> None:
        """`ahead_max` returns how many loads ahead may run at a time."""
        self._ahead_max, self._lock = ahead_max, Lock()
        self._urgent = FairQueue[Queued]()
        self._ahead: deque[Queued] = deque()
        self._ahead_running = 0
        self._refused = 0

    def __len__(self) -> int:
        """Number of waiting loads."""
        return len(self._urgent) + len(self._ahead)

    def add(self, load: Queued) -> None:
        """Append a load to its queue; one `take` must follow."""
        with self._lock:
            if load.urgent:
                self._urgent.add(load.reader, load)
            else:
                self._ahead.append(load)

    def hurry(self, load: Queued) -> bool:
        """Make a load urgent, as a reader waits now; returns whether one more `take` is needed."""
        with self._lock:
            if load.urgent or load not in self._ahead:
                return False
            self._ahead.remove(load)
            load.urgent = True
            self._urgent.add(load.reader, load)
            return self._pardon()

    def drop(self, load: Queued) -> bool:
        """Remove a load that has no waiter; False if it has begun."""
        with self._lock:
            if load not in self._ahead:
                return False
            self._ahead.remove(load)
            return True

    def take(self) -> Queued | None:
        """The load to begin now, None if none may begin."""
        with self._lock:
            if self._urgent:
                return self._urgent.take()
            if not self._ahead:
                return None
            if self._ahead_running >= self._ahead_max():
                self._refused += 1
                return None
            self._ahead_running += 1
            return self._ahead.popleft()

    def ended(self, load: Queued) -> bool:
        """End a load that was taken; returns whether one more `take` is needed."""
        with self._lock:
            if not load.urgent:
                self._ahead_running -= 1
            return self._pardon()

    def _pardon(self) -> bool:
        """True if a refused `take` is to be repeated; the lock is held."""
        if not self._refused:
            return False
        self._refused -= 1
        return True


class Wait(Enum):
    """Why a key's value is not there yet."""

    LOADING = "loading"
    FAILING = "the store fails"
    FULL = "too many reads wait"
    DAMAGED = "the object is damaged"


class Load(Protocol[T]):
    """The work of one job of the reader pool: it brings a value for each of its keys.

    `run` is called in a pool thread, everything else on the owner's thread. After `reserve`, each
    key either arrives or is freed.
    """

    @property
    def keys(self) -> Sequence[Hashable]:
        """Names of the values, in the order in which `run` yields them."""
        ...

    def reserve(self) -> bool:
        """Set memory aside, just before the load is queued; False: there is none, do not queue."""
        ...

    def run(self, damaged: int) -> Iterator[T]:
        """Yield the values; `damaged` is how often the object was found damaged before."""
        ...

    def arrived(self, number: int, value: T) -> None:
        """Accept the value of a key, before its waiters are called."""
        ...

    def failed(self, error: BaseException, is_final: bool) -> None:
        """Accept the error that ended the load, unless it was abandoned before.

        `is_final`: the object was damaged also when it was fetched past the caches.
        """
        ...

    def free(self, number: int) -> None:
        """Free the memory that was set aside for a key that will not arrive."""
        ...


@dataclass(slots=True, eq=False)
class _Flight:
    """A load that waits for a thread or has one.

    Attributes:
        urgent: A reader waits for it.
        damaged: How often its object was found damaged before.
        reader: The first reader that waits.
        owner: Of a load ahead: its reader.
        arrived: How many of its keys have arrived.
        began_ms: When a thread took it.
        given_up: It runs too long; its keys may be loaded again.
        waiters: By the number of the key.
    """

    load: Load[Any]
    keys: Sequence[Hashable]
    urgent: bool
    damaged: int = 0
    reader: str = ""
    owner: object = None
    arrived: int = 0
    began_ms: int | None = None
    given_up: bool = False
    waiters: dict[int, dict[Waiter, None]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def missing(self) -> range:
        """Numbers of the keys that have not arrived."""
        return range(self.arrived, len(self.keys))


@dataclass(slots=True)
class _Failure:
    """A failed load; `waiters` asked again before `retry_at_ms`."""

    error: BaseException
    retry_at_ms: int
    attempts: int
    damaged: int
    waiters: dict[Waiter, None] = field(default_factory=dict)


class Loads:
    """All loads of one tier, over all caches: they share the reader pool and its bound."""

    def __init__(
        self, workers: Workers, clock: Clock, scheduler: Scheduler, in_flight_max: int
    ) -> None:
        self._workers, self._clock, self._scheduler = workers, clock, scheduler
        self._in_flight_max = in_flight_max
        self._flights: dict[Hashable, tuple[_Flight, int]] = {}
        self._failures: dict[Hashable, _Failure] = {}
        self._queue = LoadQueue(self._ahead_max)
        self._queued, self._for_memory = WaitQueue(scheduler), WaitQueue(scheduler)
        self._is_polling = False

    def _ahead_max(self) -> int:
        threads = self._workers.threads(READER_POOL)
        return max(1, threads - max(1, threads // 5))

    def set_bound(self, in_flight_max: int) -> None:
        """Allow `in_flight_max` loads to be queued or running from now on."""
        self._in_flight_max = in_flight_max
        self._queued.call()

    @property
    def in_flight(self) -> int:
        """Number of keys queued or being loaded."""
        return len(self._flights)

    def has_capacity(self) -> bool:
        """True if a load without a waiter may be started."""
        return len(self._flights) * 2 < self._in_flight_max

    def __contains__(self, key: Hashable) -> bool:
        """True if the key is being loaded."""
        return key in self._flights

    def has_failed(self, key: Hashable) -> bool:
        """True if the last load of the key failed: then only a waiting reader should try again."""
        return key in self._failures

    def failure(self, key: Hashable) -> BaseException | None:
        """The error of the key's last load, None if it did not fail."""
        known = self._failures.get(key)
        return None if known is None else known.error

    def ask(self, load: Load[Any], waiter: Waiter, reader: str = "") -> Wait:
        """Load the one key of `load`, unless it is being loaded or has just failed.

        Args:
            load: Reserves its memory only if it is queued.
            waiter: Called once, on the owner's thread, when the caller should ask again.
            reader: Name of the reader, for the fair queue.
        """
        (key,) = load.keys
        found = self._flights.get(key)
        if found is not None:
            flight, number = found
            flight.waiters[number][waiter] = None
            if not flight.urgent:
                flight.reader = reader
            if self._queue.hurry(flight):
                self._send_for_one()
            return Wait.FAILING if key in self._failures else Wait.LOADING
        now_ms = self._clock.monotonic_ms()
        failed = self._failures.get(key)
        if failed is not None and now_ms < failed.retry_at_ms:
            if failed.damaged >= DAMAGE_LIMIT:
                return Wait.DAMAGED
            if not failed.waiters:
                retry = partial(self._retry, failed)
                self._scheduler.call_later(failed.retry_at_ms - now_ms, retry)
            failed.waiters[waiter] = None
            return Wait.FAILING
        if len(self._flights) >= self._in_flight_max:
            self._queued.join(waiter, reader)
            return Wait.FULL
        if not load.reserve():
            self._for_memory.join(waiter, reader)
            self._poll_memory()
            return Wait.FULL
        damaged = 0 if failed is None or failed.damaged >= DAMAGE_LIMIT else failed.damaged
        flight = _Flight(load, (key,), urgent=True, damaged=damaged, reader=reader)
        flight.waiters[0][waiter] = None
        self._start(flight)
        return Wait.FAILING if failed is not None else Wait.LOADING

    def leave(self, key: Hashable, waiter: Waiter) -> None:
        """Do not call `waiter` for the key any more; it need not be waiting."""
        found = self._flights.get(key)
        if found is not None:
            found[0].waiters[found[1]].pop(waiter, None)
        failed = self._failures.get(key)
        if failed is not None:
            failed.waiters.pop(waiter, None)
        self._queued.leave(waiter)
        self._for_memory.leave(waiter)

    @property
    def waiting_for_memory(self) -> int:
        """Number of waiters for room for a load."""
        return len(self._queued) + len(self._for_memory)

    def has_memory(self) -> None:
        """Call the waiters for memory: some was freed."""
        self._for_memory.call()

    def _poll_memory(self) -> None:
        """Try again at an interval while there are waiters: free memory may not be reported."""
        if self._is_polling:
            return

        def poll() -> None:
            self._is_polling = False
            self._for_memory.call()
            if self._for_memory:
                self._poll_memory()

        self._is_polling = True
        self._scheduler.call_later(MEMORY_POLL_MS, poll)

    def ahead(self, owner: object, load: Load[Any]) -> bool:
        """Load keys that no reader waits for yet and that are not being loaded.

        Args:
            owner: Their reader, see `forget_reader`.
            load: May omit keys when it reserves its memory.

        Returns:
            False if there was no memory for any of them.
        """
        if not load.reserve():
            return False
        self._start(_Flight(load, load.keys, urgent=False, owner=owner))
        return True

    def forget_reader(self, owner: object) -> None:
        """Drop loads ahead of a reader that is gone, unless they have begun."""
        for flight in {id(flight): flight for flight, _ in self._flights.values()}.values():
            if flight.owner == owner and not flight.urgent and self._queue.drop(flight):
                self._land(flight)
                self._landed()

    def _start(self, flight: _Flight) -> None:
        for number, key in enumerate(flight.keys):
            self._flights[key] = (flight, number)
        self._queue.add(flight)
        self._send_for_one()

    def _send_for_one(self) -> None:
        """Let a thread take the load that is first by then."""
        taken: list[_Flight] = []

        def work() -> Any:
            flight = self._queue.take()
            if flight is None:
                return None
            assert isinstance(flight, _Flight)
            taken.append(flight)
            flight.began_ms = self._clock.monotonic_ms()
            return self._fly(flight)

        def done(value: Any, error: BaseException | None) -> None:
            if taken:
                self._ended(taken[0], value, error)

        self._workers.run(READER_POOL, work, done)

    def _fly(self, flight: _Flight) -> Any:
        """In a pool thread: post each value as it arrives, and return the last."""
        value, count, key_count = None, 0, len(flight.keys)
        for value in flight.load.run(flight.damaged):
            count += 1
            if count < key_count:
                self._workers.post(partial(self._arrived, flight, value))
        assert count == key_count, (count, key_count)
        return value

    def _arrived(self, flight: _Flight, value: Any) -> None:
        number = flight.arrived
        self._leave(flight, number)
        flight.arrived += 1
        self._failures.pop(flight.keys[number], None)
        flight.load.arrived(number, value)
        self._wake(flight, number)
        self._landed()

    def _ended(self, flight: _Flight, value: Any, error: BaseException | None) -> None:
        if self._queue.ended(flight):
            self._send_for_one()
        if error is None:
            self._arrived(flight, value)
            return
        self._land(flight)
        if not flight.given_up:
            is_final = self._failed(flight.keys[flight.arrived], error, flight.damaged)
            flight.load.failed(error, is_final)
        for number in flight.missing:
            self._wake(flight, number)
        self._landed()

    def _wake(self, flight: _Flight, number: int) -> None:
        """Call the waiters of a key: the first ones now, the others when the thread is free."""
        self._call(deque(flight.waiters.pop(number, ())))

    def _retry(self, failed: _Failure) -> None:
        """Call all waiters of a failed load whose pause is over: one timer for all of them."""
        waiters, failed.waiters = failed.waiters, {}
        self._call(deque(waiters))

    def _call(self, waiters: deque[Waiter]) -> None:
        try:
            for _ in range(min(CALLS_MAX, len(waiters))):
                waiters.popleft()()
        finally:
            if waiters:
                self._scheduler.call_later(0, partial(self._call, waiters))

    def _landed(self) -> None:
        """Call the waiters for room: a load has ended, and its memory is idle or free."""
        self._queued.call()
        self._for_memory.call()

    def _land(self, flight: _Flight) -> None:
        """End a load that brings no further value."""
        for number in flight.missing:
            self._leave(flight, number)
        for number in flight.missing:
            flight.load.free(number)

    def _leave(self, flight: _Flight, number: int) -> None:
        """Mark a key as no longer being loaded, unless a later load brings it."""
        key = flight.keys[number]
        if self._flights.get(key) == (flight, number):
            del self._flights[key]

    def _failed(self, key: Hashable, error: BaseException, damaged: int) -> bool:
        """Remember a failure; returns whether the object counts as damaged from now on."""
        known = self._failures.pop(key, None)
        attempts = 1 if known is None else known.attempts + 1
        if isinstance(error, DAMAGE):
            damaged += 1
        pause_ms = min(FIRST_RETRY_MS * 2 ** min(attempts - 1, 10), RETRY_MAX_MS)
        if damaged == 1 and isinstance(error, DAMAGE):
            pause_ms = 0
        elif damaged >= DAMAGE_LIMIT:
            pause_ms = RETRY_MAX_MS
        retry_at_ms = self._clock.monotonic_ms() + pause_ms
        self._failures[key] = _Failure(_without_frames(error), retry_at_ms, attempts, damaged)
        while len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        return damaged >= DAMAGE_LIMIT

    def give_up_hanging(self, limit_ms: int) -> None:
        """Abandon loads that run longer than `limit_ms`; their waiters get a failing store."""
        now_ms = self._clock.monotonic_ms()
        for flight, number in list(self._flights.values()):
            if number != flight.arrived or flight.began_ms is None:
                continue
            if now_ms - flight.began_ms <= limit_ms:
                continue
            flight.given_up = True
            for missing in flight.missing:
                self._leave(flight, missing)
            late = TimeoutError(f"a read runs longer than {limit_ms} ms")
            self._failed(flight.keys[number], late, 0)
            for missing in flight.missing:
                self._wake(flight, missing)
            self._landed()


def _without_frames(error: BaseException) -> BaseException:
    """The error and its causes, without the frames, which would keep their local objects alive."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
