"""Accounts of a thread's time: its own work, a busy machine, the interpreter's lock, waits."""

import gc
import os
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

_TICK_MS: Final = 1_000 // os.sysconf("SC_CLK_TCK")


class Accounts(NamedTuple):
    """Times of a thread, counted from some start; zeros where the kernel has none."""

    cpu_ms: float = 0
    """Time on a CPU."""
    runnable_ms: float = 0
    """Time in which it could have run, and waited for a CPU."""
    stolen_ms: float = 0
    """Time of this machine's CPUs that the hypervisor gave to others."""
    lock_ms: float = 0
    """Time in which a watching thread did not get the interpreter's lock."""
    full_collections: int = 0
    """Passes of the garbage collector over all objects."""


class Gap(NamedTuple):
    """A long interval, and its parts.

    Attributes:
        held_ms: All of it, the sum of the next five.
        cpu_ms: Its thread ran.
        runnable_ms: Its thread waited for a CPU.
        stolen_ms: The hypervisor ran another machine.
        lock_ms: Another thread had the interpreter's lock.
        blocked_ms: The rest, for example a disk, or a lock.
        full_collections: Passes of the garbage collector over all objects meanwhile.
    """

    held_ms: float
    cpu_ms: float
    runnable_ms: float
    stolen_ms: float
    lock_ms: float
    blocked_ms: float
    full_collections: int

    @property
    def own_ms(self) -> float:
        """The part that a busy machine does not explain."""
        return self.held_ms - self.runnable_ms - self.stolen_ms


def account_for(held_ms: float, before: Accounts, after: Accounts) -> Gap:
    """Divide an interval into its parts; each part is at most what those before it leave.

    The readings may span more than the interval. Then running and waiting for a CPU have the same
    shares of it as of the span. A watching thread lacks the lock also while the watched one has it:
    that is CPU time.
    """
    cpu_ms = after.cpu_ms - before.cpu_ms
    runnable_ms = after.runnable_ms - before.runnable_ms
    share = min(1.0, held_ms / max(cpu_ms + runnable_ms, 1e-3))
    rest_ms = held_ms
    parts = []
    for part_ms in (
        runnable_ms * share,
        cpu_ms * share,
        after.stolen_ms - before.stolen_ms,
        after.lock_ms - before.lock_ms - cpu_ms,
    ):
        parts.append(max(0.0, min(part_ms, rest_ms)))
        rest_ms -= parts[-1]
    collections = after.full_collections - before.full_collections
    return Gap(held_ms, parts[1], parts[0], parts[2], parts[3], rest_ms, collections)


class KernelAccounts:
    """Reads the accounts of the thread that creates this object; any thread may read.

    Source: Linux, Documentation/scheduler/sched-stats.rst (schedstat) and proc(5) (stat).
    """

    def __init__(self) -> None:
        self._schedstat = _opened(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._stat = _opened("/proc/stat")

    def read(self, *, with_stolen: bool) -> Accounts:
        """Present accounts; stolen time costs more to read on machines with many CPUs."""
        collections = gc.get_stats()[2]["collections"]
        stolen_ms = self._stolen_ms() if with_stolen else 0
        try:
            cpu_ns, runnable_ns, _ = os.pread(self._schedstat, 100, 0).split()
        except (OSError, ValueError):
            return Accounts(stolen_ms=stolen_ms, full_collections=collections)
        return Accounts(
            int(cpu_ns) / 1e6, int(runnable_ns) / 1e6, stolen_ms, full_collections=collections
        )

    def _stolen_ms(self) -> float:
        try:
            return int(os.pread(self._stat, 200, 0).split(maxsplit=9)[8]) * _TICK_MS
        except (OSError, ValueError, IndexError):
            return 0

    def close(self) -> None:
        """Close the files; no later reads."""
        for fd in (self._schedstat, self._stat):
            if fd >= 0:
                os.close(fd)
        self._schedstat = self._stat = -1


def _opened(path: str) -> int:
    try:
        return os.open(Path(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a kernel without it
        return -1


class LockAccounts:
    """Time that the creating thread lacked the interpreter's lock after its sleeps."""

    _FEW_MS: Final = 10
    _READ_AT_LEAST_EACH: Final = 32

    def __init__(self) -> None:
        self._kernel = KernelAccounts()
        self._cpu_s = time.process_time()
        self._runnable_ms = self._kernel.read(with_stolen=False).runnable_ms
        self._unread = 0

    def lacked_ms(self, late_ms: float) -> float:
        """The part of a sleep's lateness in which another thread had the lock.

        Neither the wait for a CPU is, nor a time in which no thread of the process ran: the machine
        stood still, or the process was stopped.
        """
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        self._unread += 1
        if late_ms > self._FEW_MS or self._unread >= self._READ_AT_LEAST_EACH:
            before_ms, self._unread = self._runnable_ms, 0
            self._runnable_ms = self._kernel.read(with_stolen=False).runnable_ms
            late_ms -= self._runnable_ms - before_ms
        return max(0.0, min(late_ms, (self._cpu_s - before_s) * 1_000))

    def close(self) -> None:
        """Close the files; no later calls."""
        self._kernel.close()
