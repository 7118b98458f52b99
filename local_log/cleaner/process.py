"""The cleaner process, and both ends of its link: `python -m local_log.cleaner.process LINK_FD`.

Records are decoded there, so the broker's interpreter lock is not held. The process runs one job
after the other. It ends after a minute without a job, and when the broker closes the link, which it
checks between two reads. The next start removes its files.

Each message on the link is one line of JSON. The broker sends a `Job`, followed by the packed
producers of the log. The process answers with `Alive` once a second, with a `Group` for each new
segment on the disk, and with a final `Done` or `Failed`.

A pass runs in a thread of its own, so that `Alive` is sent also during a slow read or fsync.
"""

import logging
import select
import socket
import sys
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from kafka_protocol.errors import TidemarkError
from local_log.cleaner.log_pass import DamagedBatchError, Done, Group, Job, LogPass
from runtime.child_process import ChildProcess, give_way, start_child
from runtime.clock import Clock, SystemClock
from runtime.disk import Disk
from runtime.executors import make_mutex, make_pool
from runtime.incidents import Incident

log = logging.getLogger(__name__)

SILENCE_MAX_S: Final = 60.0
"""Longest silence of a process with a job; it sends `Alive` once a second."""
STALL_MAX_S: Final = 1800.0
"""How long a pass may wait for its disk before other logs continue; not a fault of its log."""
IDLE_MS: Final = 60_000
ALIVE_EVERY_S: Final = 1.0
WAIT_MAX_MS: Final = 1_000
"""Longest wait of a pass for its rate before it checks the link again."""
NICENESS: Final = 10
THREAD: Final = "cleaner-pass"
_END_MAX_S: Final = 5.0
_RECEIVE_BYTES: Final = 1 << 18


class Order(msgspec.Struct, frozen=True):
    """A job without its producers, and the size of these, which follow the line."""

    job: Job
    producers_bytes: int


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The process works; sent once a second during a job, also while it waits for a disk.

    Attributes:
        steps: Grows as the pass proceeds.
    """

    number: int
    steps: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The pass ended early.

    Attributes:
        is_damage: A batch is damaged, so another attempt would fail, too.
        reason: For people, with file and byte.
    """

    number: int
    is_damage: bool
    reason: str


Answer: TypeAlias = Alive | Group | Done | Failed

encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_answer = msgspec.json.Decoder(Answer).decode


# -- the broker's side
# ------------------------------------------------------------------------------


def send_job(sock: socket.socket, job: Job) -> None:
    """Send a job. Producers, up to a million, go as bytes, so that encoding holds no lock."""
    order = Order(msgspec.structs.replace(job, producers=b""), len(job.producers))
    sock.sendall(encode(order) + b"\n")
    sock.sendall(job.producers)


class WorkerLostError(TidemarkError):
    """The process ended during a job, or was silent for too long.

    Attributes:
        in_job: It had begun the job, which may be the cause.
    """

    def __init__(self, message: str, *, in_job: bool = False) -> None:
        super().__init__(message)
        self.in_job = in_job


StartProcess = Callable[[int], ChildProcess]
"""Starts a process with its end of the link."""


def start_cleaner_process(link_fd: int) -> ChildProcess:
    """Start a real process."""
    return start_child("local_log.cleaner.process", [str(link_fd)], descriptors=[link_fd])


class ProcessWorker:
    """Runs jobs, one after the other, in a process that is started for a job when needed.

    All methods on one pool thread, except `kill` and `stop`.
    """

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
        self._steps = self._moved_ms = 0  # progress of the pass, and since when
        self._process: ChildProcess | None = None
        self._sock: socket.socket | None = None
        self._buffer = bytearray()
        self._number = -1
        self._unanswered: Job | None = None  # until the process is known to have it
        self._is_doomed = self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """Process id while there is one."""
        process = self._process
        return None if process is None else process.pid

    def begin(self, job: Job) -> None:
        """Begin a job; starts a process if there is none.

        Raises:
            WorkerLostError: No process can be started.
        """
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
            send_job(self._sock, self._unanswered)
        except OSError:
            return False
        return True

    def next_answer(self) -> Answer:
        """Wait for the next answer; answers to earlier jobs are skipped.

        Raises:
            WorkerLostError: The process ended or is silent.
        """
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
            self._start_one()  # it ended for lack of work just before the job

    def _lost(self, why: str, *, in_job: bool = True) -> WorkerLostError:
        pid, in_job = self.pid, in_job and not self._unanswered and not self._is_doomed
        self.close()
        return WorkerLostError(f"cleaner process {pid}: {why}", in_job=in_job)

    def kill(self) -> None:
        """Kill the process; from any thread. The next job starts another one."""
        process = self._process
        if process is not None:
            self._is_doomed = True
            process.kill()

    def stop(self) -> None:
        """Kill the process, and run no more jobs."""
        self._is_stopped = True
        self.kill()

    def close(self) -> None:
        """Kill the process, and wait for its end."""
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
        """Release a process that ended for lack of work."""
        process = self._process
        if process is not None and process.exit_code() is not None:
            log.info("cleaner process ended: pid=%d", process.pid)
            self.close()


# -- the process's side
# -----------------------------------------------------------------------------


class LinkEnded(TidemarkError):
    """The broker ended, or closed the link."""


class Link:
    """Messages to and from the broker; two threads send."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._mutex = make_mutex()
        self._buffer = bytearray()

    def next_job(self, wait_ms: int) -> Job | None:
        """Wait for the next job; None if none arrives in this time.

        Raises:
            LinkEnded: The broker closed the link.
        """
        while (end := self._buffer.find(b"\n") + 1) == 0:
            if not self._is_readable(wait_ms):
                return None
            self._receive()
        order = decode_order(self._buffer[:end])
        while len(self._buffer) < end + order.producers_bytes:
            self._receive()
        producers = bytes(self._buffer[end : end + order.producers_bytes])
        del self._buffer[: end + order.producers_bytes]
        return msgspec.structs.replace(order.job, producers=producers)

    def _receive(self) -> None:
        data = self._sock.recv(_RECEIVE_BYTES)
        if not data:
            raise LinkEnded
        self._buffer += data

    def send(self, answer: Answer) -> None:
        """Send one answer.

        Raises:
            LinkEnded: The broker closed the link.
        """
        try:
            with self._mutex:
                self._sock.sendall(encode(answer) + b"\n")
        except OSError as error:
            raise LinkEnded from error

    def wait(self, wait_ms: float) -> None:
        """Wait; ends with the link.

        Raises:
            LinkEnded: The broker closed the link; it sends no job during another one.
        """
        if self._is_readable(wait_ms):
            raise LinkEnded

    def _is_readable(self, wait_ms: float) -> bool:
        return bool(select.select([self._sock], [], [], wait_ms / 1000)[0])


class Pace:
    """Limits the rate of a pass, counts its steps, and ends it with the link.

    Attributes:
        steps: See `Alive`.
    """

    def __init__(self, job: Job, link: Link, clock: Clock) -> None:
        self._job, self._link, self._clock = job, link, clock
        self._begun_ms = clock.monotonic_ms()
        self._bytes = self.steps = 0

    def moved(self, size: int) -> None:
        """Count bytes read or written, and wait for the rate.

        Raises:
            LinkEnded: The broker closed the link.
        """
        self._bytes += size
        rate = self._job.settings.bytes_per_second
        while True:
            self.steps += 1
            took_ms = self._clock.monotonic_ms() - self._begun_ms
            ahead_ms = self._bytes / rate * 1000 - took_ms if rate > 0 else 0
            self._link.wait(min(max(ahead_ms, 0), WAIT_MAX_MS))
            if ahead_ms <= 0:
                return


def do_job(
    job: Job, send: Callable[[Answer], None], moved: Callable[[int], None], disk: Disk
) -> None:
    """Execute one job and send its answers; errors are sent, too."""
    try:
        for answer in LogPass(job, disk, moved).run():
            send(answer)
    except LinkEnded:
        raise
    except DamagedBatchError as error:
        send(Failed(number=job.number, is_damage=True, reason=str(error)))
    except (OSError, MemoryError) as error:
        send(Failed(number=job.number, is_damage=False, reason=str(error) or repr(error)))
    except Exception as error:  # a loop top: this log is set aside, other logs continue
        log.exception(Incident.DEFECT.line(what=f"a pass failed: directory={job.directory}"))
        what = f"a pass over {job.directory} failed with {type(error).__name__}: {error}"
        send(Failed(number=job.number, is_damage=True, reason=what))


def serve(link: Link, disk: Disk, clock: Clock) -> None:
    """Execute jobs until none arrives for a minute.

    Raises:
        LinkEnded: The broker closed the link.
    """
    pool = make_pool(THREAD, 1)
    while (job := link.next_job(IDLE_MS)) is not None:
        link.send(Alive(job.number, 0))  # errors from here on concern this log
        pace = Pace(job, link, clock)
        done = pool.submit(do_job, job, link.send, pace.moved, disk)
        try:
            while not wait([done], ALIVE_EVERY_S).done:
                link.send(Alive(job.number, pace.steps))
        finally:
            done.exception()  # it still uses the link
        done.result()


def main(link_fd: int) -> None:
    """Serve the link until it ends, or no job arrives for a minute."""
    give_way(NICENESS)
    with socket.socket(fileno=link_fd) as sock, suppress(LinkEnded):
        serve(Link(sock), Disk(), SystemClock())


if __name__ == "__main__":
    main(int(sys.argv[1]))
