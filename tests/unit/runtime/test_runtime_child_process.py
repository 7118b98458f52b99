"""What is known of a child process from outside."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from runtime.child_process import killing_children_on_error, runnable_ms_of


def of_own_threads() -> float:
    stats = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[1]) for stat in stats) / 1e6


def test_the_time_without_a_cpu_is_that_of_all_threads_of_a_process() -> None:
    before = of_own_threads()
    told = runnable_ms_of(os.getpid())
    assert before <= told <= of_own_threads()
    assert before > 0


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    assert runnable_ms_of(child) == 0


def sleeping() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "600"])


def interrupted(started: "list[subprocess.Popen[bytes]]") -> None:
    with killing_children_on_error():
        started += [sleeping(), sleeping()]
        raise KeyboardInterrupt


def test_children_of_a_block_end_with_its_exception_and_older_ones_do_not() -> None:
    before = sleeping()
    started: list[subprocess.Popen[bytes]] = []
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(started)
        assert [one.wait(10) for one in started] == [-signal.SIGKILL] * 2
        assert before.poll() is None
        with killing_children_on_error():
            started.append(sleeping())
        assert started[-1].poll() is None
    finally:
        for one in (before, *started):
            one.kill()
            one.wait()
