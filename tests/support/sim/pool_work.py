"""Work on simulated pools, cut at each operation of the disk: what is due meanwhile comes between.

    with in_pieces():                        # around a run; ends what is left of it
        job = Job(process, call)
        job.proceed()                          # until its next cut, or its end

Each call has a thread, but only one thread runs at a time: the one that lets a job continue waits
until the job is cut again. So a run is the same each time, and nothing in it needs a lock. Where
nothing else is due before an operation ends, the job continues without a change of threads.

Locks that code asks `make_mutex` for know of this: a job that needs one waits for its release; the
event loop, which must not wait long, has the holder continue until then, and nothing else
meanwhile.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol

from runtime import executors
from runtime.executors import spawn_thread
from tests.support.sim.memory_disk import ProcessEnded
from tests.support.sim.timeline import Lives, Timeline


class Works(Lives, Protocol):
    """A process, as far as its jobs know it.

    Attributes:
        timeline: where it lives.
        jobs: those that have begun and not ended.
    """

    timeline: Timeline
    jobs: "dict[Job, None]"

    @property
    def has_ended(self) -> bool:
        """Whether it is no more."""
        ...

    def end(self) -> None:
        """Nothing that was begun continues."""
        ...


class _Worker:
    """A thread that makes one job's call after the other, each time that it is let continue."""

    def __init__(self) -> None:
        self.job: Job | None = None  # None: end
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        spawn_thread("sim-pool", self._work)

    def let_continue(self) -> None:
        """Return when it has handed over."""
        self._go.release()
        self._back.acquire()

    def hand_over(self) -> None:
        """On the worker's own thread: return when it may continue."""
        self._back.release()
        self._go.acquire()

    def _work(self) -> None:
        self._go.acquire()
        while self.job is not None:
            self.job.run()
            self.hand_over()
        self._back.release()


class _Crew:
    """The threads of a run.

    Attributes:
        idle: those without a job.
        jobs: those under way.
        now: the job that runs at this moment; None: the event loop does.
    """

    def __init__(self) -> None:
        self.idle: list[_Worker] = []
        self.jobs: dict[Job, None] = {}
        self.now: Job | None = None

    def close(self) -> None:
        while self.jobs:
            next(iter(self.jobs)).process.end()
        for worker in self.idle:
            worker.job = None
            worker.let_continue()


_crews: list[_Crew] = []


@contextmanager
def in_pieces() -> Iterator[None]:
    """Let pools of simulated processes work, and their locks be those that never block a thread."""
    crew, before = _Crew(), executors.mutexes
    _crews.append(crew)
    executors.mutexes = SimMutex
    try:
        yield
    finally:
        executors.mutexes = before
        crew.close()
        _crews.remove(crew)


class Job:
    """One call on a pool.

    Attributes:
        process: whose.
        is_hurried: the event loop waits for what it holds: it is not cut.
        waits_for: what another job holds.
    """

    __slots__ = (
        "_call",
        "_crew",
        "_failure",
        "_turn",
        "_worker",
        "is_hurried",
        "process",
        "waits_for",
    )

    def __init__(self, process: Works, call: Callable[[], None]) -> None:
        """Take the call, which begins with the first `proceed`."""
        assert _crews, "pools of simulated processes work within `in_pieces`"
        self._crew = _crews[-1]
        self._worker = self._crew.idle.pop() if self._crew.idle else _Worker()
        self._worker.job = self
        self._call, self.process = call, process
        self._turn = 0
        self._failure: BaseException | None = None
        self.is_hurried = False
        self.waits_for: SimMutex | None = None
        process.jobs[self] = self._crew.jobs[self] = None

    # -- on the thread of the event loop --------------------------------------------------------

    def proceed(self) -> None:
        """Run until the next cut or the end; raises what ended the process in between."""
        crew = self._crew
        assert crew.now is None, "a job lets another continue"
        assert self in crew.jobs, "a job that has ended continues"
        crew.now = self
        self._turn += 1
        self._worker.let_continue()
        crew.now = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _due(self, turn: int) -> None:
        if turn == self._turn:  # else it was let continue before
            self.proceed()

    def abandon(self) -> None:
        """Its process has ended: end the call where it is."""
        if self in self._crew.jobs:
            self.proceed()

    # -- on its own thread ----------------------------------------------------------------------

    def run(self) -> None:
        """Make the call; nothing escapes from here."""
        try:
            self._call()
        except ProcessEnded as error:
            if not self.process.has_ended:  # it ends here: whoever runs the loop must know
                self._failure = error
        except BaseException as error:
            self._failure = error
        del self.process.jobs[self], self._crew.jobs[self]
        self._crew.idle.append(self._worker)

    def take(self, cost_us: int) -> None:
        """An operation of the disk begins: it ends so much later, after what is due until then."""
        timeline = self.process.timeline
        if self.is_hurried:
            return
        ends_us = timeline.now_us + cost_us
        next_us = timeline.next_us
        if next_us is None or next_us > ends_us:
            timeline.now_us = ends_us
            return
        self.proceed_at(ends_us)
        self._worker.hand_over()

    def proceed_at(self, at_us: int) -> None:
        """Be let continue at a moment, unless that happens before."""
        if not self.process.has_ended:
            self.process.timeline.at_process(at_us, self.process, self._due, self._turn)

    def wait(self, mutex: "SimMutex") -> None:
        """Return when somebody lets it continue.

        Raises:
            ProcessEnded: the process is no more.
        """
        self.waits_for = mutex
        if not self.process.has_ended:
            self._worker.hand_over()
        self.waits_for = None
        if self.process.has_ended:
            raise ProcessEnded

    def wait_for(self, future: "Future[Any]") -> None:
        """Return when a call on another pool is done.

        Raises:
            ProcessEnded: the process is no more.
        """
        assert not self.is_hurried, "the event loop would wait for itself"
        while not future.done():
            future.add_done_callback(lambda _: self.proceed_at(self.process.timeline.now_us))
            if not self.process.has_ended:
                self._worker.hand_over()
            if self.process.has_ended:
                raise ProcessEnded

    def has_released(self) -> None:
        """If the event loop waits, it is its turn now."""
        if self.is_hurried and not self.process.has_ended:
            self.is_hurried = False
            self.proceed_at(self.process.timeline.now_us)
            self._worker.hand_over()


def current_job() -> Job | None:
    """The job whose thread runs; None on that of the event loop."""
    return _crews[-1].now if _crews else None


class SimMutex:
    """A lock of threads of which one runs at a time."""

    __slots__ = ("_held_by", "_is_held", "_waiting")

    def __init__(self) -> None:
        self._is_held = False
        self._held_by: Job | None = None
        self._waiting: list[Job] = []

    def __enter__(self) -> None:
        job = current_job()
        while self._is_held:
            if job is None:
                self._hurry()
            else:
                self._waiting.append(job)
                job.wait(self)
        self._is_held, self._held_by = True, job

    def _hurry(self) -> None:
        """Have the holder continue, uncut, until it has released what it holds, or waits itself."""
        holder = self._held_by
        assert holder is not None, "the event loop waits for itself"
        if holder.waits_for is not None and holder.waits_for._is_held:
            holder.waits_for._hurry()
        else:
            holder.is_hurried = True
            holder.proceed()

    def __exit__(self, *_exc: object) -> None:
        holder, self._is_held, self._held_by = self._held_by, False, None
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            job.proceed_at(job.process.timeline.now_us)
        if holder is not None:
            holder.has_released()
