"""A process's use of its machine, and its version, for the page of metrics.

Names are those of Prometheus' client libraries (prometheus.io, Process metrics). Each value is one
small read of /proc for each page.
"""

import os
import platform
import threading
import time
from functools import cache
from pathlib import Path
from typing import Final

from runtime.disk_errors import descriptors_max, open_descriptors
from runtime.metrics import Registry
from runtime.version import installed_version

_PROC: Final = Path("/proc")
_SELF: Final = _PROC / "self"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_START_FIELD: Final = 19
"""Of /proc/self/stat, counted behind the name of the command: ticks from boot to the start."""


def register_process(metrics: Registry, prefix: str = "") -> None:
    """Register memory, CPU, descriptors, threads and start time of this process.

    Args:
        metrics: Of the process.
        prefix: Of all names, where two processes share a page.
    """
    name = f"{prefix}process_"
    metrics.asked_counter(f"{name}cpu_seconds_total", "CPU time of the process.", time.process_time)
    metrics.gauge(
        f"{name}resident_memory_bytes", "Memory that the process has in RAM.", fn=resident_bytes
    )
    metrics.gauge(f"{name}open_fds", "Open file descriptors.", fn=open_descriptors)
    metrics.gauge(
        f"{name}max_fds",
        "File descriptors that may be open.",
        fn=descriptors_max,
    )
    metrics.gauge(f"{name}threads", "Threads of the interpreter.", fn=threading.active_count)
    metrics.gauge(
        f"{name}start_time_seconds", "When the process started, since 1970.", fn=start_time_s
    )


def register_build(metrics: Registry) -> None:
    """Register the version, as labels of a 1."""
    labels = installed_version(), platform.python_version()
    metrics.gauge("tidemark_build_info", "1, with what runs as labels.", ("version", "python")).set(
        1, *labels
    )


def resident_bytes() -> int:
    """Memory that this process has in RAM."""
    return int((_SELF / "statm").read_text().split()[1]) * _PAGE_BYTES


@cache
def start_time_s() -> float:
    """Start time of this process, in seconds since 1970."""
    fields = (_SELF / "stat").read_text().rpartition(")")[2].split()
    (boot,) = (
        line.split()[1]
        for line in (_PROC / "stat").read_text().splitlines()
        if line.startswith("btime ")
    )
    return int(boot) + int(fields[_START_FIELD]) / _TICKS_PER_S
