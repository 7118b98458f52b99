"""A process on a timeline: its clock runs apart, its pools take time, and it can end at any moment.

    process = SimProcess(timeline, clock=SimClock(timeline, rate=1001), disk=disk, ...)
    part = Part(config, process.ports(rng))
    process.end()        # nothing that it has begun or asked for happens any more

Work on a pool begins at some moment after it was asked for, is cut at each operation of the disk,
for as long as the disk says that it takes (`pool_work`), and its result comes back later still. A
process that ends in between has done a part of it, or all, and does not know.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from runtime.clock import Clock
from runtime.executors import Pool
from runtime.ports import Ports
from runtime.rng import Rng
from runtime.scheduler import Timer, run_guarded
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.pool_work import Job, current_job
from tests.support.sim.timeline import Timeline

P = ParamSpec("P")
T = TypeVar("T")
Wait = Callable[[], int]
"""Microseconds until a pool begins with a call, and until its result is back."""


class SimClock:
    """A clock that runs fast or slow, and whose wall time jumps; it outlives its process.

    Attributes:
        rate: milliseconds of this clock in a second of the timeline.
        offset_ms: of the monotonic time.
        wall_offset_ms: of the wall time to the monotonic one.
    """

    __slots__ = ("_timeline", "offset_ms", "rate", "wall_offset_ms")

    def __init__(
        self,
        timeline: Timeline,
        *,
        rate: int = 1000,
        offset_ms: int = 0,
        wall_offset_ms: int = 1_700_000_000_000,
    ) -> None:
        self._timeline = timeline
        self.rate, self.offset_ms, self.wall_offset_ms = rate, offset_ms, wall_offset_ms

    def monotonic_ms(self) -> int:
        """Time since some moment."""
        return self.offset_ms + self._timeline.now_us * self.rate // 1_000_000

    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""
        return self.offset_ms * 1_000_000 + self._timeline.now_us * self.rate

    def wall_ms(self) -> int:
        """What the clock on the wall shows."""
        return self.monotonic_ms() + self.wall_offset_ms

    def at_us(self, monotonic_ms: float) -> int:
        """First microsecond of the timeline at which this clock shows so much."""
        return int(-(-(monotonic_ms - self.offset_ms) * 1_000_000 // self.rate))


class _Timer:
    __slots__ = ("fn",)

    def __init__(self, fn: Callable[[], object]) -> None:
        self.fn: Callable[[], object] | None = fn

    def cancel(self) -> None:
        self.fn = None

    def run(self) -> None:
        fn, self.fn = self.fn, None
        if fn is not None:
            fn()


class _Repeater:
    __slots__ = ("_fn", "_interval_ms", "_name", "_scheduler", "_timer")

    def __init__(
        self, scheduler: "SimScheduler", interval_ms: float, fn: Callable[[], object], name: str
    ) -> None:
        self._scheduler, self._interval_ms, self._fn, self._name = scheduler, interval_ms, fn, name
        self._timer: Timer | None = scheduler.call_later(interval_ms, self._run)

    def _run(self) -> None:
        run_guarded(self._fn, self._name)
        if self._timer is not None:
            self._timer = self._scheduler.call_later(self._interval_ms, self._run)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SimScheduler:
    """Timers of one process."""

    __slots__ = ("_process",)

    def __init__(self, process: "SimProcess") -> None:
        self._process = process

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Call `fn` after what is due now."""
        process = self._process
        process.later(process.timeline.now_us, fn)

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        """Call `fn` once the process's clock has moved by `delay_ms`."""
        process = self._process
        clock, timer = process.clock, _Timer(fn)
        due_us = clock.at_us(clock.monotonic_ms() + delay_ms)
        process.later(max(due_us, process.timeline.now_us), timer.run)
        return timer

    def every(self, interval_ms: float, fn: Callable[[], object], name: str) -> Timer:
        """Call `fn` each time the process's clock has moved by `interval_ms`."""
        return _Repeater(self, interval_ms, fn, name)


class SimFuture(Future[T]):
    """A result that work on another pool waits for, as one thread does for another."""

    def result(self, timeout: float | None = None) -> T:
        self._wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait()
        return super().exception(timeout)

    def _wait(self) -> None:
        job = current_job()
        if job is not None:
            job.wait_for(self)


class SimPool:
    """A pool with as many threads as anybody needs."""

    __slots__ = ("_process", "_wait")

    def __init__(self, process: "SimProcess", wait: Wait) -> None:
        self._process, self._wait = process, wait

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make the call at some later moment."""
        future: Future[T] = SimFuture()
        process, wait = self._process, self._wait

        def call() -> None:
            came_back: Callable[[], object]
            try:
                result = fn(*args, **kwargs)
            except Exception as error:
                came_back = partial(future.set_exception, error)
            else:
                came_back = partial(future.set_result, result)
            process.later(process.timeline.now_us + wait(), came_back)

        def begin() -> None:
            if future.set_running_or_notify_cancel():
                Job(process, call).proceed()

        process.later(process.timeline.now_us + wait(), begin)
        return future

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Nobody awaits here."""
        raise AssertionError("a simulation has no event loop")

    def shutdown(self, *, wait: bool = True) -> None:
        """Nothing to stop."""


class Pools:
    """One pool under every name."""

    def __init__(self, pool: SimPool) -> None:
        self.commit: Pool = pool
        self.reads: Pool = pool
        self.background: Pool = pool
        self.changes: Pool = pool

    def pool(self, name: str, threads: int) -> Pool:
        return self.commit

    def waiting(self) -> Mapping[str, int]:
        return {}

    def shutdown(self, *, wait: bool = True) -> None:
        """Nothing to stop."""


@dataclass(eq=False)
class SimProcess:
    """See the module.

    Attributes:
        disk: of this process alone; see `MemoryDisk`.
        paused_until: it does nothing before.
        life: another number once it has ended.
        wait_us: see `Wait`.
        jobs: work on its pools that has begun.
    """

    timeline: Timeline
    clock: SimClock
    disk: MemoryDisk
    wait_us: Wait
    paused_until: int = 0
    life: int = 1
    jobs: dict[Job, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disk.takes = self._takes

    def _takes(self, cost_us: int) -> None:
        """An operation of the disk lasts, on a pool; on the event loop it is done at once."""
        job = current_job()
        if job is not None:
            job.take(cost_us)

    @property
    def has_ended(self) -> bool:
        """Whether it is no more."""
        return self.life != 1

    def later(self, at_us: int, fn: Callable[[], object]) -> None:
        """Let something happen to this process, if it still lives then."""
        if self.life == 1:  # what is left of an ended process may still be tidied up
            self.timeline.at_process(at_us, self, fn)

    def end(self) -> None:
        """Nothing that was begun continues."""
        self.life = 0
        self.disk.end()
        for job in list(self.jobs):
            job.abandon()

    def make_pool(self) -> SimPool:
        """The one pool that it has under every name."""
        return SimPool(self, self.wait_us)

    def ports(self, rng: Rng) -> Ports:
        """What its code stands on."""
        clock: Clock = self.clock
        return Ports(
            clock=clock,
            scheduler=SimScheduler(self),
            executors=Pools(self.make_pool()),
            disk=self.disk,
            rng=rng,
        )
