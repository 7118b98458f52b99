"""Long work on the event loop's thread: in steps, with calls on pools and waits between them.

Such work is a generator. It yields None where other work of the loop may run first, an `OnPool` for
a call beside the loop, whose result or error it is sent, and an `Until` to wait for an event. The
length of a step is counted and not measured, so that a repeated simulation pauses at the same
places.

    @stepwise
    def added_up(numbers: Sequence[int]) -> Steps[int]:
        total, pace = 0, Pace()
        for number in numbers:
            total += number
            if pace.is_step_over():
                yield
        return total

    def copies() -> Work[None]:
        while waiting:
            numbers = yield OnPool(pool, waiting.pop().read)
            note((yield from added_up.steps(numbers)))

    added_up([1, 2])                                    # at once
    await run_in_steps(added_up.steps([1, 2]))          # in a coroutine
    Runner(copies, scheduler, failed=logged("copies"))  # by callbacks, as a simulation needs it

Pure packages import this module: it imports no asyncio, threads or clocks.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, update_wrapper
from types import coroutine
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar

from runtime.collector import collect_after_step
from runtime.executors import Pool
from runtime.incidents import Incident
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# -- the notation -------------------------------------------------------------------------------


class OnPool:
    """Make a call on a pool, and continue with its result."""

    __slots__ = ("call", "pool")
    __match_args__ = ("pool", "call")

    def __init__(
        self, pool: Pool, fn: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        self.pool, self.call = pool, partial(fn, *args, **kwargs)


Wait = Callable[[Callable[[], None]], None]
"""Calls its argument on the loop, once, now or later."""


@dataclass(frozen=True, slots=True)
class Until:
    """Continue when `wait` has called its argument."""

    wait: Wait


Work = Generator[OnPool | Until | None, Any, R_co]
Steps = Generator[None, None, R_co]
"""Work that only computes."""

STEP_WORK: Final = 3_000
"""Units of work in a step; a unit is about a microsecond."""


class Pace:
    """Counts work, and decides where a step ends."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def is_step_over(self, work: int = 1) -> bool:
        """Add `work` units; whether to yield now."""
        self._done += work
        if self._done < STEP_WORK:
            return False
        self._done = 0
        return True


class Stepwise(Generic[P, R]):
    """A function that can be called as a whole or in steps."""

    def __init__(self, steps: Callable[P, Steps[R]]) -> None:
        self.steps = steps
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result, at once."""
        return at_once(self.steps(*args, **kwargs))


def stepwise(steps: Callable[P, Steps[R]]) -> Stepwise[P, R]:
    """Let a generator function be called as a whole, too."""
    return Stepwise(steps)


# -- steps at once, and in coroutines -----------------------------------------------------------


def at_once(steps: Steps[R]) -> R:
    """Take all steps one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


async def run_in_steps(steps: Steps[R]) -> R:
    """Take all steps, with an iteration of the loop's other work after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        collect_after_step()
        await _yield_to_others()


def result_or_rest(steps: Steps[R]) -> R | Coroutine[Any, Any, R]:
    """Take the first step now.

    Returns:
        The result, or the rest of the steps for `await`.
    """
    try:
        next(steps)
    except StopIteration as end:
        result: R = end.value
        return result
    return run_in_steps(steps)


@coroutine
def _yield_to_others() -> Steps[None]:
    """Yield like `asyncio.sleep(0)`: a task that gets None resumes after the ready ones."""
    yield


# -- work by callbacks --------------------------------------------------------------------------

_GO_ON: Final = (None, None)


class Runner:
    """Runs the work that `begin` makes, never two at a time; use it from the loop's thread only.

    Attributes:
        is_closed: It begins no work any more.
    """

    __slots__ = (
        "_around",
        "_begin",
        "_call",
        "_failed",
        "_in_slice",
        "_next",
        "_scheduler",
        "_when_idle",
        "_work",
        "is_closed",
    )

    def __init__(
        self,
        begin: Callable[[], Work[None]],
        scheduler: Scheduler,
        *,
        failed: Callable[[Exception], object],
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Run nothing yet.

        Args:
            begin: Makes the work, which ends when there is nothing to do.
            scheduler: Calls on the loop's thread.
            failed: Gets the error that ended the work; the next `start` begins again.
            around: Context manager around each step, for example to measure it.
        """
        self._begin, self._scheduler = begin, scheduler
        self._failed, self._around = failed, around
        self._work: Work[None] | None = None
        self._call: tuple[Pool, Future[object]] | None = None
        self._next: tuple[Any, BaseException | None] | None = None
        self._in_slice = self.is_closed = False
        self._when_idle: list[Callable[[], None]] = []

    @property
    def is_running(self) -> bool:
        """Whether there is work that has not ended."""
        return self._work is not None

    def start(self) -> None:
        """Begin, unless work runs: that looks for more itself before it ends.

        The first step is taken now; short work ends in it.
        """
        if self._work is None and not self.is_closed:
            self._work = self._begin()
            self._resume(_GO_ON)

    def when_idle(self, fn: Callable[[], None]) -> None:
        """Call `fn` once no work runs; perhaps at once."""
        self._when_idle.append(fn)
        self._check_idle()

    def cancel(self) -> None:
        """End the work at its present step, and begin none any more; `failed` is not called.

        A call that is on a pool continues.
        """
        self.is_closed = True
        work, self._work = self._work, None
        if work is not None and not self._in_slice:
            work.close()

    async def stop(self) -> None:
        """Cancel once the work's call on a pool has ended."""
        self.is_closed = True
        if self._call is not None:
            pool, future = self._call
            await pool.run(future.exception)
        self.cancel()

    def _resume(self, given: tuple[Any, BaseException | None]) -> None:
        """Continue.

        A scheduler that calls at once must not make the stack deeper with each step.
        """
        self._next = given
        if self._in_slice:
            return
        self._in_slice = True
        try:
            while self._next is not None and self._work is not None and not self.is_closed:
                given, self._next = self._next, None
                with self._around():
                    self._step(self._work, *given)
        finally:
            self._in_slice = False

    def _step(self, work: Work[None], value: Any, error: BaseException | None) -> None:
        try:
            wanted = work.send(value) if error is None else work.throw(error)
        except StopIteration:
            self._end(None)
        except Exception as caught:  # noqa: BLE001 - handed over to the one who wants the work
            # This frame holds what was thrown: with it in its traceback both are a cycle.
            self._end(caught.with_traceback(getattr(caught.__traceback__, "tb_next", None)))
        else:
            if self.is_closed:  # by the work itself, in this step
                work.close()
                return
            match wanted:
                case None:
                    collect_after_step()
                    self._scheduler.call_soon(partial(self._resume, _GO_ON))
                case Until(wait):
                    wait(partial(self._resume, _GO_ON))
                case OnPool(pool, call):
                    self._submit(pool, call)

    def _submit(self, pool: Pool, call: Callable[[], object]) -> None:
        try:
            future = pool.submit(call)
        except RuntimeError as refused:  # the pool is shut down: the work may have its `finally`
            self._resume((None, refused))
            return
        self._call = pool, future
        future.add_done_callback(self._pool_done)

    def _pool_done(self, future: "Future[object]") -> None:
        """On any thread."""
        self._scheduler.call_soon(partial(self._settle, future))

    def _settle(self, future: "Future[object]") -> None:
        self._call = None
        if not future.cancelled():
            error = future.exception()
            self._resume((None if error else future.result(), error))

    def _end(self, error: Exception | None) -> None:
        if self.is_closed:
            return
        self._work = None
        if error is not None:
            self._failed(error)
        self._check_idle()

    def _check_idle(self) -> None:
        if self._work is None:
            waiting, self._when_idle = self._when_idle, []
            for fn in waiting:
                fn()


def logged(name: str) -> Callable[[Exception], None]:
    """Make a `failed` that logs the error of the work of that name."""

    def failed(error: Exception) -> None:
        if isinstance(error, OSError):
            log.error(Incident.TASK_FAILED.line(task=name, error=error))
        else:
            line = Incident.DEFECT.line(what=f"work ended before its end: name={name}")
            log.error(line, exc_info=error)

    return failed


class _Piece(NamedTuple):
    call: Callable[[], Any]
    done: Callable[[Any], None]
    first: Wait | None


class WorkQueue(Runner):
    """Calls on a pool in the order they were added; use it from the loop's thread only."""

    def __init__(
        self, pool: Pool, scheduler: Scheduler, on_error: Callable[[Exception], None]
    ) -> None:
        """Begin with nothing to do.

        Args:
            pool: Makes the calls.
            scheduler: Returns results to the loop.
            on_error: Gets the error of a call, or of a `done`; nothing is begun after it.
        """
        super().__init__(self._work_off, scheduler, failed=self._fail)
        self._pool, self._on_error = pool, on_error
        self._pieces: deque[_Piece] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do; also True within the `done` of the last piece."""
        return not self._pieces

    def add(
        self, call: Callable[[], R], done: Callable[[R], None], *, first: Wait | None = None
    ) -> None:
        """Make `call` on the pool after all that was added before, then `done(result)` on the loop.

        With `first`, `first(begin)` is called on the loop in its turn, and the call is made when
        `begin` is called.
        """
        self._pieces.append(_Piece(call, done, first))
        self.start()

    def _work_off(self) -> Work[None]:
        while self._pieces:
            call, done, first = self._pieces[0]
            if first is not None:
                yield Until(first)
            result = yield OnPool(self._pool, call)
            self._pieces.popleft()
            done(result)

    def _fail(self, error: Exception) -> None:
        self.cancel()
        self._pieces.clear()
        self._on_error(error)
