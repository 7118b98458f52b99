"""Child processes of ours, started from this installation."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

_PR_SET_PDEATHSIG = 1

_PACKAGES_ROOT: Final = Path(__file__).resolve().parent.parent


class ChildProcess(Protocol):
    """A running child."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def kill(self) -> None:
        """Send SIGKILL; does nothing if it is gone already."""
        ...

    def exit_code(self) -> int | None:
        """Its exit code, None while it runs; reaps it when it has ended."""
        ...

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; None if it still runs after `timeout_s`."""
        ...

    def starved_ms(self) -> float:
        """Time in ms that its threads, in sum, waited for a CPU; 0 if it is not known."""
        ...


class _Child:
    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    def kill(self) -> None:
        if self._child.poll() is None:
            self._child.kill()

    def exit_code(self) -> int | None:
        return self._child.poll()

    def wait(self, timeout_s: float | None = None) -> int | None:
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def starved_ms(self) -> float:
        return runnable_ms_of(self.pid)


def runnable_ms_of(pid: int) -> float:
    """Milliseconds that the threads of a process waited for a CPU; 0 if it is gone.

    Source: Linux, Documentation/scheduler/sched-stats.rst.
    """
    total_ns = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total_ns += int(stat.read_bytes().split()[1])
        except (OSError, ValueError, IndexError):  # the thread has ended; a kernel without it
            continue
    return total_ns / 1e6


def start_child(
    module: str,
    arguments: Sequence[str],
    *,
    descriptors: Sequence[int],
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> ChildProcess:
    """Start a module of ours as a process.

    Args:
        module: As for `python -m`.
        arguments: Of the module.
        descriptors: Those that it inherits, under the same numbers.
        defaults: Environment variables where ours does not set them.
    """
    environment = {**defaults, **os.environ}
    path = [str(_PACKAGES_ROOT)]
    if environment.get("PYTHONPATH"):
        path.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(path)
    # -P: a `runtime` or `broker` in the working directory is not ours.
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        pass_fds=tuple(descriptors),
        env=environment,
    )
    return _Child(child)


def own_pid() -> int:
    """The id of this process."""
    return os.getpid()


def give_way(niceness: int) -> None:
    """Lower this process's CPU priority by `niceness`."""
    os.nice(niceness)


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent dies; exit if that has happened already.

    The parent is the thread that started this process: it must exist as long as its process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(0)


@contextmanager
def killing_children_on_error() -> Iterator[None]:
    """Kill the children that this thread starts within the block, where an exception ends it.

    For a library that hides its child and leaves it behind on Ctrl-C. Children from before the
    block, and those of other threads, continue.
    """
    before = _children_of_this_thread()
    try:
        yield
    except BaseException:
        for pid in _children_of_this_thread() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def _children_of_this_thread() -> set[int]:
    """Source: Linux, Documentation/filesystems/proc.rst, 3.7; empty where a kernel has it not."""
    try:
        text = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    except FileNotFoundError:
        return set()
    return set(map(int, text.split()))
