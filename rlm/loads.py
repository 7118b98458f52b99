"""Loads from the store: one for each key however many wait, a memory of failures, a bounded queue.

Belongs to the thread that owns the tier's state. Who asks for a key and gets a `Wait` is called
once when something has changed for that key; it then asks again.
"""

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from rlm.chunk import DamagedChunkError
from rlm.performer import READER_POOL
from rlm.segment_index import DamagedIndexError
from rlm.workers import Workers
from rsm_plugins.api import RemoteObjectDamagedError
from runtime.clock import Clock
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

FIRST_RETRY_MS, RETRY_MAX_MS = 100, 5_000
FULL_RETRY_MS = 20
DAMAGE_LIMIT = 2
"""A damaged object is fetched once more past the caches; then it counts as damaged for a while."""

T = TypeVar("T")
Waiter = Callable[[], None]


def _nothing() -> None:
    """Nobody else needs to know."""


def _unbounded() -> bool:
    """Nothing needs to be set aside."""
    return True


DAMAGE = (DamagedChunkError, DamagedIndexError, RemoteObjectDamagedError)


class Wait(Enum):
    """Why a key's value is not there yet."""

    LOADING = "loading"
    FAILING = "the store fails"
    FULL = "too many reads wait"
    DAMAGED = "the object is damaged"


@dataclass(slots=True)
class _Flight:
    started_ms: int
    waiters: list[Waiter] = field(default_factory=list)
    given_up: bool = False


@dataclass(slots=True)
class _Failure:
    error: BaseException
    retry_at_ms: int
    attempts: int
    damaged: int


class Loads:
    """All loads of one tier, over all caches: they share the reader pool and its bound."""

    def __init__(
        self, workers: Workers, clock: Clock, scheduler: Scheduler, in_flight_max: int
    ) -> None:
        self._workers, self._clock, self._scheduler = workers, clock, scheduler
        self._in_flight_max = in_flight_max
        self._flights: dict[Hashable, _Flight] = {}
        self._failures: dict[Hashable, _Failure] = {}

    def set_bound(self, in_flight_max: int) -> None:
        """Let that many loads be queued or running from now on."""
        self._in_flight_max = in_flight_max

    @property
    def in_flight(self) -> int:
        """Loads queued or running."""
        return len(self._flights)

    def has_room(self) -> bool:
        """Whether a load that nobody waits for may be started."""
        return len(self._flights) * 2 < self._in_flight_max

    def failure(self, key: Hashable) -> BaseException | None:
        """Why the key could not be loaded the last time."""
        known = self._failures.get(key)
        return None if known is None else known.error

    def ask(
        self,
        key: Hashable,
        job: Callable[[int], T],
        loaded: Callable[[T], None],
        waiter: Waiter,
        on_damage: Callable[[], None] = _nothing,
        make_room: Callable[[], bool] = _unbounded,
        free_room: Callable[[], None] = _nothing,
    ) -> Wait:
        """Have `key` loaded, unless it is on its way or has just failed.

        Args:
            key: names what is loaded.
            job: run in the reader pool; given how often the object was found damaged already.
            loaded: takes the value, on the owner's thread, before the waiters are called.
            waiter: called once, on the owner's thread, when it is worth asking again.
            on_damage: called on the owner's thread when the object was found damaged.
            make_room: called just before the job is queued; if it says False the job is not, and
                the waiter asks again.
            free_room: gives back what `make_room` set aside, on the owner's thread.
        """
        flight = self._flights.get(key)
        if flight is not None:
            flight.waiters.append(waiter)
            return Wait.FAILING if key in self._failures or flight.given_up else Wait.LOADING
        now_ms = self._clock.monotonic_ms()
        failed = self._failures.get(key)
        if failed is not None and now_ms < failed.retry_at_ms:
            if failed.damaged >= DAMAGE_LIMIT:
                return Wait.DAMAGED
            self._scheduler.call_later(failed.retry_at_ms - now_ms, waiter)
            return Wait.FAILING
        if len(self._flights) >= self._in_flight_max or not make_room():
            self._scheduler.call_later(FULL_RETRY_MS, waiter)
            return Wait.FULL
        self._start(key, job, loaded, waiter, on_damage, free_room)
        return Wait.FAILING if failed is not None else Wait.LOADING

    def _start(
        self,
        key: Hashable,
        job: Callable[[int], T],
        loaded: Callable[[T], None],
        waiter: Waiter,
        on_damage: Callable[[], None],
        free_room: Callable[[], None],
    ) -> None:
        failed = self._failures.get(key)
        damaged = 0 if failed is None or failed.damaged >= DAMAGE_LIMIT else failed.damaged
        flight = self._flights[key] = _Flight(self._clock.monotonic_ms(), [waiter])

        def done(value: T | None, error: BaseException | None) -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]
            if error is None:
                self._failures.pop(key, None)
                assert value is not None
                loaded(value)
            else:
                free_room()
                if not flight.given_up:
                    self._failed(key, error, damaged)
                    if isinstance(error, DAMAGE):
                        on_damage()
            for each in flight.waiters:
                each()

        self._workers.run(READER_POOL, lambda: job(damaged), done)

    def _failed(self, key: Hashable, error: BaseException, damaged: int) -> None:
        known = self._failures.pop(key, None)
        attempts = 1 if known is None else known.attempts + 1
        if isinstance(error, DAMAGE):
            damaged += 1
        pause_ms = min(FIRST_RETRY_MS * 2 ** min(attempts - 1, 10), RETRY_MAX_MS)
        if damaged == 1:
            pause_ms = 0
        elif damaged >= DAMAGE_LIMIT:
            pause_ms = RETRY_MAX_MS
        retry_at_ms = self._clock.monotonic_ms() + pause_ms
        self._failures[key] = _Failure(error, retry_at_ms, attempts, damaged)
        while len(self._failures) > 10_000:
            del self._failures[next(iter(self._failures))]

    def give_up_hanging(self, limit_ms: int) -> None:
        """Let go of loads that run longer than `limit_ms`: who waits hears of a failing store."""
        now_ms = self._clock.monotonic_ms()
        for key, flight in list(self._flights.items()):
            if now_ms - flight.started_ms <= limit_ms:
                continue
            flight.given_up = True
            del self._flights[key]
            self._failed(key, TimeoutError(f"a read runs longer than {limit_ms} ms"), 0)
            waiters, flight.waiters = flight.waiters, []
            for each in waiters:
                each()
