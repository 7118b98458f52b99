"""What is known of a child process from outside."""

import os
from pathlib import Path

from runtime.child_process import runnable_ms_of


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
