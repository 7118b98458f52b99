"""Loads from the store: one for each key however many wait, a memory of failures, a bounded queue.

Belongs to the thread that owns the tier's state. Who asks for a key and gets a `Wait` is called
once when something has changed for that key; it then asks again. What is loaded ahead of a reader
waits behind what somebody waits for, and is let go if its reader vanishes before it has begun.
"""

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from rlm.chunk import DamagedChunkError
from rlm.load_queue import LoadQueue
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
OnFailure = Callable[[BaseException, bool], None]
"""Takes why a load failed, and whether it was damage that a fetch past the caches found again."""


def _nothing() -> None:
    """Nothing was set aside."""


def _unheard(error: BaseException, is_final: bool) -> None:
    """Nobody else needs to know."""


def _nothing_of(_: int) -> None:
    """Nothing was set aside."""


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


@dataclass(slots=True, eq=False)
class _Load:
    """One job of the reader pool, which brings the values of its keys in their order.

    Attributes:
        keys: of what it brings; those before `arrived` have come.
        owner: of a load ahead: the reader it is for.
        began_ms: when a thread took it.
        waiters: of each key.
    """

    keys: Sequence[Hashable]
    job: Callable[[int], Iterator[Any]]
    loaded: Callable[[int, Any], None]
    free_room: Callable[[int], None]
    on_failure: OnFailure
    urgent: bool
    damaged: int
    owner: object = None
    arrived: int = 0
    began_ms: int | None = None
    given_up: bool = False
    waiters: list[list[Waiter]] = field(default_factory=list)

    def take_waiters(self, number: int) -> list[Waiter]:
        found, self.waiters[number] = self.waiters[number], []
        return found


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
        self._flights: dict[Hashable, tuple[_Load, int]] = {}
        self._failures: dict[Hashable, _Failure] = {}
        self._queue = LoadQueue(self._ahead_max)

    def _ahead_max(self) -> int:
        threads = self._workers.threads(READER_POOL)
        return max(1, threads - max(1, threads // 5))

    def set_bound(self, in_flight_max: int) -> None:
        """Let that many loads be queued or running from now on."""
        self._in_flight_max = in_flight_max

    @property
    def in_flight(self) -> int:
        """Keys queued or being loaded."""
        return len(self._flights)

    def has_room(self) -> bool:
        """Whether a load that nobody waits for may be started."""
        return len(self._flights) * 2 < self._in_flight_max

    def __contains__(self, key: Hashable) -> bool:
        """Whether the key is on its way."""
        return key in self._flights

    def has_failed(self, key: Hashable) -> bool:
        """Whether the last load of the key failed: only who needs it should try again."""
        return key in self._failures

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
        on_failure: OnFailure = _unheard,
        make_room: Callable[[], bool] = _unbounded,
        free_room: Callable[[], None] = _nothing,
    ) -> Wait:
        """Have `key` loaded, unless it is on its way or has just failed.

        Args:
            key: names what is loaded.
            job: run in the reader pool; given how often the object was found damaged already.
            loaded: takes the value, on the owner's thread, before the waiters are called.
            waiter: called once, on the owner's thread, when it is worth asking again.
            on_failure: called on the owner's thread when the load failed.
            make_room: called just before the job is queued; if it says False the job is not, and
                the waiter asks again.
            free_room: gives back what `make_room` set aside, on the owner's thread.
        """
        flight = self._flights.get(key)
        if flight is not None:
            load, number = flight
            load.waiters[number].append(waiter)
            if self._queue.hurry(load):
                self._send_for_one()
            return Wait.FAILING if key in self._failures or load.given_up else Wait.LOADING
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
        damaged = 0 if failed is None or failed.damaged >= DAMAGE_LIMIT else failed.damaged

        def one(damaged: int) -> Iterator[T]:
            yield job(damaged)

        self._start(
            _Load(
                (key,),
                one,
                lambda _, value: loaded(value),
                lambda _: free_room(),
                on_failure,
                urgent=True,
                damaged=damaged,
                waiters=[[waiter]],
            )
        )
        return Wait.FAILING if failed is not None else Wait.LOADING

    def ahead(
        self,
        owner: object,
        keys: Sequence[Hashable],
        job: Callable[[int], Iterator[T]],
        loaded: Callable[[int, T], None],
        on_failure: OnFailure = _unheard,
        free_room: Callable[[int], None] = _nothing_of,
    ) -> None:
        """Have keys loaded in one go that nobody waits for yet and that are not on their way.

        Args:
            owner: the reader they are for, see `forsake`.
            keys: in the order in which `job` yields their values.
            job: run in the reader pool.
            loaded: takes the number of a key and its value, as soon as it has come.
            on_failure: as for `ask`.
            free_room: called for each key that will not come.
        """
        waiters: list[list[Waiter]] = [[] for _ in keys]
        self._start(
            _Load(
                keys, job, loaded, free_room, on_failure, urgent=False, damaged=0, owner=owner,
                waiters=waiters,
            )
        )  # fmt: skip

    def forsake(self, owner: object) -> None:
        """A reader is gone: what was to be loaded ahead of it and has not begun is not loaded."""
        for load in {id(load): load for load, _ in self._flights.values()}.values():
            if load.owner == owner and not load.urgent and self._queue.drop(load):
                self._land(load)
                for number in range(len(load.keys)):
                    load.free_room(number)

    def _start(self, load: _Load) -> None:
        for number, key in enumerate(load.keys):
            self._flights[key] = (load, number)
        self._queue.add(load)
        self._send_for_one()

    def _send_for_one(self) -> None:
        """Have a thread take the load that comes first by then."""
        taken: list[_Load] = []

        def work() -> Any:
            load = self._queue.take()
            if load is None:
                return None
            assert isinstance(load, _Load)
            taken.append(load)
            load.began_ms = self._clock.monotonic_ms()
            return self._fly(load)

        def done(value: Any, error: BaseException | None) -> None:
            if taken:
                self._ended(taken[0], value, error)

        self._workers.run(READER_POOL, work, done)

    def _fly(self, load: _Load) -> Any:
        """In a pool thread: hand over each value as it comes, and return the last."""
        value, count = None, 0
        for value in load.job(load.damaged):
            count += 1
            if count < len(load.keys):
                self._workers.post(partial(self._arrived, load, value))
        assert count == len(load.keys), (count, load.keys)
        return value

    def _arrived(self, load: _Load, value: Any) -> None:
        number = load.arrived
        load.arrived += 1
        key = load.keys[number]
        if self._flights.get(key) == (load, number):
            del self._flights[key]
        self._failures.pop(key, None)
        load.loaded(number, value)
        for each in load.take_waiters(number):
            each()

    def _ended(self, load: _Load, value: Any, error: BaseException | None) -> None:
        if self._queue.ended(load):
            self._send_for_one()
        if error is None:
            self._arrived(load, value)
            return
        first = load.arrived
        self._land(load)
        for number in range(first, len(load.keys)):
            load.free_room(number)
        if not load.given_up:
            is_final = self._failed(load.keys[first], error, load.damaged)
            load.on_failure(error, is_final)
        self._wake(load)

    def _land(self, load: _Load) -> None:
        for number in range(load.arrived, len(load.keys)):
            key = load.keys[number]
            if self._flights.get(key) == (load, number):
                del self._flights[key]

    def _wake(self, load: _Load) -> None:
        for number in range(load.arrived, len(load.keys)):
            for each in load.take_waiters(number):
                each()

    def _failed(self, key: Hashable, error: BaseException, damaged: int) -> bool:
        """Remember a failure; say whether the object counts as damaged from here on."""
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
        self._failures[key] = _Failure(error, retry_at_ms, attempts, damaged)
        while len(self._failures) > 10_000:
            del self._failures[next(iter(self._failures))]
        return damaged >= DAMAGE_LIMIT

    def give_up_hanging(self, limit_ms: int) -> None:
        """Let go of loads that run longer than `limit_ms`: who waits hears of a failing store."""
        now_ms = self._clock.monotonic_ms()
        for load, number in list(self._flights.values()):
            if number != load.arrived or load.began_ms is None or load.given_up:
                continue
            if now_ms - load.began_ms <= limit_ms:
                continue
            load.given_up = True
            self._land(load)
            late = TimeoutError(f"a read runs longer than {limit_ms} ms")
            self._failed(load.keys[load.arrived], late, 0)
            self._wake(load)
