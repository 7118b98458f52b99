"""The cleaner process: `python -m local_log.cleaner.process LINK_FD`.

Records are opened here, so that nothing of it holds the interpreter of the broker. It does one job
after the other, ends after a minute without one, and when the broker's end of the link is closed:
it looks at the link between two reads. What it leaves then is removed at the next start.

A pass runs in a thread of its own, so that the process can say that it lives while a read or an
fsync takes its time.
"""

import logging
import select
import socket
import sys
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Final

from kafka_protocol.errors import TidemarkError
from local_log.cleaner.log_pass import DamagedBatchError, LogPass
from local_log.log.cleaning_job import (
    Alive,
    Answer,
    Failed,
    Job,
    Order,
    decode_order,
    encode,
    whole_job,
)
from runtime.child_process import give_way
from runtime.clock import Clock, SystemClock
from runtime.disk import Disk
from runtime.executors import make_mutex, make_pool

log = logging.getLogger(__name__)

IDLE_MS: Final = 60_000
ALIVE_EVERY_S: Final = 1.0
WAIT_MAX_MS: Final = 1_000
"""So long at most a pass waits for its rate before it looks at the link again."""
NICENESS: Final = 10
THREAD: Final = "cleaner-pass"
_RECEIVE_BYTES: Final = 1 << 20


class LinkEnded(TidemarkError):
    """The broker is gone, or wants this process no more."""


class Link:
    """Lines to and from the broker; two threads send."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._mutex = make_mutex()
        self._buffer = bytearray()
        self._producers: list[bytes] = []

    def next_job(self, wait_ms: int) -> Job | None:
        """The next job; None if none comes for so long.

        Raises:
            LinkEnded: the broker closed the link.
        """
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                order: Order = decode_order(line)
                if isinstance(order, Job):
                    producers, self._producers = self._producers, []
                    return whole_job(order, producers)
                self._producers.append(order.packed)
                continue
            if not self._is_readable(wait_ms):
                return None
            data = self._sock.recv(_RECEIVE_BYTES)
            if not data:
                raise LinkEnded
            self._buffer += data

    def send(self, answer: Answer) -> None:
        """Send one answer.

        Raises:
            LinkEnded: the broker closed the link.
        """
        try:
            with self._mutex:
                self._sock.sendall(encode(answer) + b"\n")
        except OSError as error:
            raise LinkEnded from error

    def wait(self, wait_ms: float) -> None:
        """Wait, but not longer than the broker lives.

        Raises:
            LinkEnded: the broker closed the link. No job comes while one is done.
        """
        if self._is_readable(wait_ms):
            raise LinkEnded

    def _is_readable(self, wait_ms: float) -> bool:
        return bool(select.select([self._sock], [], [], wait_ms / 1000)[0])


class Pace:
    """Keeps a pass to its rate, counts how it goes on, and ends it with the broker.

    Attributes:
        steps: see `Alive`.
    """

    def __init__(self, job: Job, link: Link, clock: Clock) -> None:
        self._job, self._link, self._clock = job, link, clock
        self._begun_ms = clock.monotonic_ms()
        self._bytes = self.steps = 0

    def moved(self, size: int) -> None:
        """So many bytes were read or written.

        Raises:
            LinkEnded: nobody waits for the rest.
        """
        self._bytes += size
        rate = self._job.bytes_per_second
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
    """Do one job and send what comes of it; whatever goes wrong with the log is sent as well."""
    try:
        for answer in LogPass(job, disk, moved).run():
            send(answer)
    except LinkEnded:
        raise
    except DamagedBatchError as error:
        send(Failed(number=job.number, is_damage=True, reason=str(error)))
    except (OSError, MemoryError) as error:
        send(Failed(number=job.number, is_damage=False, reason=str(error) or repr(error)))
    except Exception as error:  # a loop top: this log is set aside, the others have their turn
        log.exception("a pass failed: directory=%s", job.directory)
        what = f"a pass over {job.directory} failed with {type(error).__name__}: {error}"
        send(Failed(number=job.number, is_damage=True, reason=what))


def serve(link: Link, disk: Disk, clock: Clock) -> None:
    """Do jobs until nothing comes for a minute.

    Raises:
        LinkEnded: the broker is gone.
    """
    pool = make_pool(THREAD, 1)
    while (job := link.next_job(IDLE_MS)) is not None:
        link.send(Alive(job.number, 0))  # what goes wrong from here on is for this log
        pace = Pace(job, link, clock)
        done = pool.submit(do_job, job, link.send, pace.moved, disk)
        try:
            while not wait([done], ALIVE_EVERY_S).done:
                link.send(Alive(job.number, pace.steps))
        finally:
            done.exception()  # it still has the link
        done.result()


def main(link_fd: int) -> None:
    """Serve the link until it ends, or nothing comes for a minute."""
    give_way(NICENESS)
    with socket.socket(fileno=link_fd) as sock, suppress(LinkEnded):
        serve(Link(sock), Disk(), SystemClock())


if __name__ == "__main__":
    main(int(sys.argv[1]))
