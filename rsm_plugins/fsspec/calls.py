"""Calls of a file system with a deadline each.

Asynchronous file systems (s3fs, gcsfs, adlfs) run on fsspec's own loop; a call past its deadline is
cancelled there. Synchronous ones block the calling thread, perhaps without end, so their calls run
in threads of this module. A thread that hangs is abandoned (it ends when its call returns), and the
caller gets its TimeoutError in time. Threads are kept for later calls, are as many as the calls at
once, and end with the process.

Must not know: which methods are called.
"""

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

_HANGING_MAX = 32


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Time-outs and attempts.

    Attributes:
        timeout_s: Of one call of the file system.
        request_timeout_s: Of one request with its repetitions, each of several calls; a `put` has
            this time for every 8 MiB.
        attempts: Of one request, the first included.
    """

    timeout_s: float
    request_timeout_s: float = 60.0
    attempts: int = 4


class BoundedCalls:
    """Calls methods of one fsspec file system, from many threads at once."""

    def __init__(self, fs: Any, timeout_s: float, *, threads: bool = True) -> None:
        """Make it.

        Args:
            fs: An fsspec file system.
            timeout_s: Deadline of one call.
            threads: False: a synchronous `fs` cannot hang, or has deadlines of its own.
        """
        self._fs = fs
        self._timeout_s = timeout_s
        self._threads = threads
        self._bound = threading.local()
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._hanging = 0
        self._closed = False

    @contextmanager
    def together_within(self, seconds: float) -> Iterator[None]:
        """Let all calls of this thread in the block end within `seconds`."""
        self._bound.end_s = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._bound.end_s

    def seconds_left(self) -> float:
        """Time-out of a call that begins now, in seconds.

        Raises:
            TimeoutError: No time is left.
        """
        left_s: float = getattr(self._bound, "end_s", float("inf")) - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("its time is over")
        return min(self._timeout_s, left_s)

    def method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the file system by its public, synchronous name.

        Raises:
            TimeoutError: It did not end in time. Errors of the method are passed on.
        """
        if self._fs.async_impl:
            coroutine = getattr(self._fs, "_" + name, None)
            if inspect.iscoroutinefunction(coroutine):
                from fsspec.asyn import sync

                return sync(self._fs.loop, coroutine, *args, timeout=self.seconds_left(), **kwargs)
        return self.call(getattr(self._fs, name), *args, **kwargs)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function that may block, in a thread.

        Raises:
            TimeoutError: It did not end in time. Errors of the function are passed on.
        """
        seconds = self.seconds_left()
        if not self._threads:
            return function(*args, **kwargs)
        worker = self._take()
        answer: Future[Any] = Future()
        worker.tasks.put(_Task(answer, function, args, kwargs))
        try:
            return answer.result(seconds)
        except FutureTimeoutError:
            if answer.done():  # it is the function's own
                raise
            raise TimeoutError(f"no answer within {seconds:.3g} s") from None
        finally:
            if answer.done():
                self._give_back(worker)
            else:
                self._leave_behind(worker, answer)

    def close(self) -> None:
        """End the idle threads."""
        with self._lock:
            workers, self._idle, self._closed = self._idle, [], True
        for worker in workers:
            worker.tasks.put(None)

    def _take(self) -> "_Worker":
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._hanging >= _HANGING_MAX:
                raise TimeoutError(f"{self._hanging} earlier calls hang; no more are begun")
        return _Worker()

    def _give_back(self, worker: "_Worker") -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        worker.tasks.put(None)

    def _leave_behind(self, worker: "_Worker", answer: "Future[Any]") -> None:
        with self._lock:
            self._hanging += 1

        def came_back(_: "Future[Any]") -> None:
            with self._lock:
                self._hanging -= 1

        answer.add_done_callback(came_back)
        worker.tasks.put(None)


class _Task:
    __slots__ = ("answer", "args", "function", "kwargs")

    def __init__(
        self,
        answer: "Future[Any]",
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.answer, self.function, self.args, self.kwargs = answer, function, args, kwargs


class _Worker:
    """A thread that runs one task after the other, until the task is None."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[_Task | None] = SimpleQueue()
        threading.Thread(target=self._run, name="fsspec-call", daemon=True).start()

    def _run(self) -> None:
        while (task := self.tasks.get()) is not None:
            try:
                result = task.function(*task.args, **task.kwargs)
            except BaseException as e:  # noqa: BLE001 - the caller's thread raises it
                task.answer.set_exception(e)
            else:
                task.answer.set_result(result)
            del task
