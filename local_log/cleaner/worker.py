"""The broker's side of the cleaner process; all of it on one pool thread, but for `kill`."""

import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol

from kafka_protocol.errors import TidemarkError
from local_log.log.cleaning_job import Alive, Answer, Job, decode_answer, lines_of
from runtime.child_process import ChildProcess, start_child
from runtime.clock import Clock, SystemClock

log = logging.getLogger(__name__)

SILENCE_MAX_S: Final = 60.0
"""A process that has a job says once a second that it is there."""
STALL_MAX_S: Final = 1800.0
"""So long a pass may wait for its disk; then others have their turn. It is no fault of its log."""
_END_MAX_S: Final = 5.0
_RECEIVE_BYTES: Final = 1 << 16


class WorkerLostError(TidemarkError):
    """The process ended in the middle of a job, or said nothing for too long.

    Attributes:
        in_job: it had begun with the job, which may be why.
    """

    def __init__(self, message: str, *, in_job: bool = False) -> None:
        super().__init__(message)
        self.in_job = in_job


class Worker(Protocol):
    """Does jobs, one after the other."""

    def begin(self, job: Job) -> None:
        """Begin a job.

        Raises:
            WorkerLostError: there is no process, and none can be started.
        """
        ...

    def next_answer(self) -> Answer:
        """Wait for what it says next.

        Raises:
            WorkerLostError: nothing will come.
        """
        ...

    def kill(self) -> None:
        """End what it does; from any thread. The next job is done by another process."""
        ...

    def stop(self) -> None:
        """As `kill`, and no job is done any more."""
        ...

    def collect(self) -> None:
        """Take note of a process that ended because it had nothing to do."""
        ...

    def close(self) -> None:
        """End it, and wait for that."""
        ...


StartProcess = Callable[[int], ChildProcess]
"""Starts one, given its end of the link."""


def start_cleaner_process(link_fd: int) -> ChildProcess:
    """Start a real one."""
    return start_child("local_log.cleaner.process", [str(link_fd)], descriptors=[link_fd])


class ProcessWorker:
    """A cleaner process, started with the first job that finds none."""

    def __init__(
        self,
        start: StartProcess = start_cleaner_process,
        *,
        silence_max_s: float = SILENCE_MAX_S,
        stall_max_s: float = STALL_MAX_S,
        clock: Clock | None = None,
    ) -> None:
        self._start, self._silence_max_s, self._stall_max_s = start, silence_max_s, stall_max_s
        self._clock = clock or SystemClock()
        self._steps = self._moved_ms = 0  # how far the pass was, and since when
        self._process: ChildProcess | None = None
        self._sock: socket.socket | None = None
        self._buffer = bytearray()
        self._number = -1
        self._unanswered: Job | None = None  # until it is known that the process has it
        self._is_doomed = self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """Process id while there is one."""
        process = self._process
        return None if process is None else process.pid

    def begin(self, job: Job) -> None:
        """See `Worker`."""
        self.collect()
        self._number, self._unanswered = job.number, job
        self._steps, self._moved_ms = -1, self._clock.monotonic_ms()
        if self._process is None or self._is_doomed or not self._sends():
            self._start_one()

    def _start_one(self) -> None:
        self.close()
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._process = self._start(its.fileno())
        except OSError as error:
            ours.close()
            raise WorkerLostError(f"no cleaner process can be started: {error}") from error
        finally:
            its.close()
        ours.settimeout(self._silence_max_s)
        self._sock = ours
        log.info("cleaner process started: pid=%d", self._process.pid)
        if self._is_stopped:
            raise self._lost("the broker stops")
        if not self._sends():
            raise self._lost("it ended at once")

    def _sends(self) -> bool:
        assert self._sock is not None
        assert self._unanswered is not None
        try:
            for line in lines_of(self._unanswered):
                self._sock.sendall(line)
        except OSError:
            return False
        return True

    def next_answer(self) -> Answer:
        """See `Worker`; answers to earlier jobs are passed over."""
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if not found:
                self._receive()
                continue
            self._buffer = rest
            answer: Answer = decode_answer(line)
            if answer.number == self._number:
                self._unanswered = None
                if isinstance(answer, Alive):
                    self._watch(answer.steps)
                return answer

    def _watch(self, steps: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if steps != self._steps:
            self._steps, self._moved_ms = steps, now_ms
        elif now_ms - self._moved_ms >= self._stall_max_s * 1000:
            raise self._lost(f"its pass has not moved for {self._stall_max_s:.0f} s", in_job=False)

    def _receive(self) -> None:
        if self._sock is None:
            raise self._lost("there is none")
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise self._lost(f"it said nothing for {self._silence_max_s:.0f} s") from None
        except ConnectionError:  # it ended before it had read all
            data = b""
        except OSError as error:
            raise self._lost(f"its link broke: {error}") from error
        self._buffer += data
        if not data:
            assert self._process is not None
            code = self._process.wait(_END_MAX_S)
            if code != 0 or not self._unanswered or self._is_doomed:
                raise self._lost(f"it ended with {code}")
            self._start_one()  # it ended for want of work, just when this came

    def _lost(self, why: str, *, in_job: bool = True) -> WorkerLostError:
        pid, in_job = self.pid, in_job and not self._unanswered and not self._is_doomed
        self.close()
        return WorkerLostError(f"cleaner process {pid}: {why}", in_job=in_job)

    def kill(self) -> None:
        """See `Worker`."""
        process = self._process
        if process is not None:
            self._is_doomed = True
            process.kill()

    def stop(self) -> None:
        """See `Worker`."""
        self._is_stopped = True
        self.kill()

    def close(self) -> None:
        """See `Worker`."""
        process, self._process = self._process, None
        sock, self._sock = self._sock, None
        self._buffer.clear()
        self._is_doomed = False
        if process is not None:
            process.kill()
            process.wait(_END_MAX_S)
        if sock is not None:
            sock.close()

    def collect(self) -> None:
        """See `Worker`."""
        process = self._process
        if process is not None and process.exit_code() is not None:
            log.info("cleaner process ended: pid=%d", process.pid)
            self.close()
