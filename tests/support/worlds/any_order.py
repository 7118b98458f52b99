"""A process whose pools and turns come in an order that an rng draws: one seed replays it."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from runtime.rng import Rng
from runtime.scheduler import Timer
from tests.support.sim.clock import ManualClock
from tests.support.sim.executors import SimExecutors
from tests.support.sim.ports import SimPorts
from tests.support.sim.rng import SeededRng
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.crash_disk import CrashDisk
from tests.support.worlds.pools import HeldPool

P = ParamSpec("P")
T = TypeVar("T")


class _Due(Future[T]):
    """A result that is there when somebody asks for it."""

    def __init__(self, pool: "AnyOrderPool") -> None:
        super().__init__()
        self._pool = pool

    def _until_done(self) -> None:
        while not self.done():
            self._pool.make_one()

    def result(self, timeout: float | None = None) -> T:
        self._until_done()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._until_done()
        return super().exception(timeout)


class AnyOrderPool:
    """A `Pool` whose calls are made in any order, when the first of their results is asked for."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._held: list[tuple[_Due[Any], Callable[[], Any]]] = []

    @property
    def held(self) -> int:
        """How many calls wait."""
        return len(self._held)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Keep the call."""
        future: _Due[T] = _Due(self)
        self._held.append((future, lambda: fn(*args, **kwargs)))
        return future

    def make_one(self) -> None:
        """Make any call that waits."""
        future, call = self._held.pop(int(self._rng.random() * len(self._held)))
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make the call, perhaps after others."""
        return self.submit(fn, *args, **kwargs).result()

    def shutdown(self, *, wait: bool = True) -> None:
        """Make what is held."""
        while wait and self._held:
            self.make_one()


class _Turn:
    """A call that can be taken back."""

    def __init__(self, fn: Callable[[], object]) -> None:
        self._fn: Callable[[], object] | None = fn

    def __call__(self) -> None:
        if self._fn is not None:
            self._fn()

    def cancel(self) -> None:
        self._fn = None


class TurnScheduler(ManualScheduler):
    """Timers on a clock that tests move; what is to be called soon waits for its turn."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._soon: deque[Callable[[], object]] = deque()

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Keep the call for a turn of its own."""
        self._soon.append(fn)

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` when the clock has moved by `delay_ms`; without a delay it waits for a turn."""
        if delay_ms > 0:
            return super().call_later(delay_ms, fn)
        turn = _Turn(fn)
        self._soon.append(turn)
        return turn

    def take_turn(self) -> bool:
        """Make the oldest call that waits; False if none does."""
        if not self._soon:
            return False
        self._soon.popleft()()
        return True


class AnyOrder:
    """The ports of one process, and what waits in them.

    Attributes:
        ports: for the process.
    """

    def __init__(self, rng: SeededRng, clock: ManualClock, disk: CrashDisk) -> None:
        self._changes = HeldPool()
        self._pool = AnyOrderPool(rng)
        self._scheduler = TurnScheduler(clock)
        self._rng = rng
        self.ports = SimPorts(
            clock=clock,
            scheduler=self._scheduler,
            executors=SimExecutors(self._pool, changes=self._changes),
            disk=disk,
            rng=rng,
        )

    def step(self) -> bool:
        """Let one thing happen that waits; False if nothing does."""
        choices: list[Callable[[], object]] = []
        if self._changes.held:
            choices.append(lambda: self._changes.release(1))
        if self._pool.held:
            choices.append(self._pool.make_one)
        choices.append(self._scheduler.take_turn)
        return choices[int(self._rng.random() * len(choices))]() is not False or bool(
            self._changes.held or self._pool.held
        )
