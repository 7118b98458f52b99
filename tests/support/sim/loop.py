"""An event loop of asyncio on a simulated process: coroutines of the product, one turn at a time.

    process = LoopProcess(timeline, clock, disk, wait_us)
    process.loop.begin(part.start())
    timeline.turn()

What is ready runs in one turn of the timeline, in the order it was asked for, as in a turn of a
real loop; its time is the process's clock. When the process ends, so do its coroutines, where they
are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tests.support.sim.process import SimPool, SimProcess

P = ParamSpec("P")
T = TypeVar("T")


class SimLoop(asyncio.AbstractEventLoop):
    """See the module.

    Attributes:
        on_error: told of what a callback or a task of nobody raises.
    """

    def __init__(self, process: SimProcess) -> None:
        self._process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.on_error: Callable[[BaseException], None] = _raised

    def run(self, fn: Callable[[], object]) -> None:
        """Call `fn` as the loop does; what it makes ready runs in a turn of its own."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            fn()
        finally:
            asyncio._set_running_loop(before)

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin what nobody waits for; `on_error` is told of what it raises."""

        def ended(task: "asyncio.Task[object]") -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.on_error(error)

        self.create_task(work).add_done_callback(ended)

    def abandon(self) -> None:
        """The process has ended: coroutines are closed where they are."""
        self._ready.clear()
        tasks, self._tasks = list(self._tasks), {}
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            assert isinstance(coroutine, Coroutine)
            with suppress(RuntimeError):  # one that waits while it is closed
                coroutine.close()

    # -- AbstractEventLoop

    def time(self) -> float:
        return self._process.clock.monotonic_ns() / 1e9

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._process.has_ended

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._process.has_ended:
            if not self._ready:
                self._process.later(self._process.timeline.now_us, self._turn)
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = self._process
        due_us = max(process.clock.at_us(when * 1000), process.timeline.now_us)
        process.later(due_us, partial(self._run_handle, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its turn comes and does nothing."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._process.has_ended:
            return  # garbage of an earlier life
        self.on_error(error or RuntimeError(context.get("message", "")))

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    def _turn(self) -> None:
        while self._ready and not self._process.has_ended:
            self._run_handle(self._ready.popleft())

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled() and not self._process.has_ended:
            handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]


def _raised(error: BaseException) -> None:
    raise error


class LoopPool(SimPool):
    """A pool whose results coroutines wait for."""

    __slots__ = ()

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self.submit(fn, *args, **kwargs))


@dataclass(eq=False)
class LoopProcess(SimProcess):
    """A process with an event loop: all that happens to it happens on that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loop = SimLoop(self)

    def later(self, at_us: int, fn: Callable[[], object]) -> None:
        super().later(at_us, partial(self.loop.run, fn))

    def end(self) -> None:
        super().end()
        self.loop.abandon()

    def make_pool(self) -> SimPool:
        return LoopPool(self, self.wait_us)
