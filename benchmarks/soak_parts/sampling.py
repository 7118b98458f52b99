"""Samples a broker: its processes by the kernel's counters, and the figures of its page."""

import json
import os
import re
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.soak_parts.validator import Series

MB = 1 << 20
PAGE_S = 20
ALLOWED: dict[str, tuple[str, float | None]] = {
    "resident memory of the broker": ("MiB", 16),
    "resident memory of the tier": ("MiB", 16),
    "threads of the broker": ("", 2),
    "threads of the tier": ("", 2),
    "CPU of the broker": ("% of a core", None),
    "CPU of the tier": ("% of a core", None),
    "descriptors of the broker": ("", None),
    "open connections": ("", 25),
    "segments": ("", 100),
    "descriptors but for these": ("", 40),
    "descriptors of the tier": ("", 25),
    "gaps of the broker's loop": ("a minute", 6),
    "gaps of the tier's loop": ("a minute", 6),
    "longest gap of the broker's loop": ("ms", None),
    "lines of the metrics page": ("", 60),
    "files": ("", 400),
}
"""Unit, and growth that is none. The broker's descriptors are validated by what holds them."""
GAPS = {
    "gaps of the broker's loop": "tidemark_event_loop_gap_ms_count",
    "gaps of the tier's loop": "tidemark_remote_event_loop_gap_ms_count",
}
SEGMENTS = "kafka_log_Log_NumLogSegments"
"""Each has a descriptor; while the tier gets no CPU they are as many as retention lets be."""
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
TIER = "rlm.tier_process"


class Samples:
    """Figures of one broker, its tier and its other children over time."""

    def __init__(self, pid: int, http: str, data: Path) -> None:
        self._broker, self._http, self._data = psutil.Process(pid), http, data
        self._began = time.monotonic()
        self._series: dict[str, Series] = {}
        self._gaps: dict[str, tuple[float, float]] = {}
        self._cpu: dict[int, tuple[float, float]] = {}

    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def of_the_run(self, seconds: float) -> list[Series]:
        """Everything sampled while the clients were there."""
        return [
            replace(one, samples=[sample for sample in one.samples if sample[0] <= seconds])
            for one in self._series.values()
        ]

    def count_after(self, seconds: float) -> int:
        """How many samples were taken since then."""
        taken = self._series.get("files")
        return sum(at > seconds for at, _ in taken.samples) if taken else 0

    def add(self, name: str, value: float, unit: str, allowance: float | None) -> None:
        series = self._series.setdefault(name, Series(name, unit, allowance))
        series.samples.append((self.elapsed_s(), value))

    def latest(self, name: str) -> float:
        series = self._series.get(name)
        return series.samples[-1][1] if series and series.samples else 0.0

    def take(self) -> None:
        """One sample of everything; processes that have just ended are excluded."""
        self._of_process("broker", self._broker)
        for child in self._broker.children():
            try:
                if TIER in child.cmdline():
                    self._of_process("tier", child)
            except psutil.NoSuchProcess:
                continue
        self._of_page()
        self._take(
            "descriptors but for these",
            self.latest("descriptors of the broker")
            - self.latest("open connections")
            - self.latest("segments"),
        )
        self._take("files", sum(len(names) for _, _, names in os.walk(self._data)))

    def _of_process(self, name: str, process: psutil.Process) -> None:
        with process.oneshot():
            times, now = process.cpu_times(), time.monotonic()
            figures = {
                "resident memory": process.memory_info().rss / MB,
                "descriptors": process.num_fds(),
                "threads": process.num_threads(),
            }
        used = times.user + times.system
        used_before, then = self._cpu.get(process.pid, (used, now - 1))
        self._cpu[process.pid] = used, now
        figures["CPU"] = (used - used_before) / (now - then) * 100
        for kind, value in figures.items():
            self._take(f"{kind} of the {name}", value)

    def _of_page(self) -> None:
        page = scraped(self._http)
        self._take("lines of the metrics page", page.count("\n"))
        self._take("open connections", summed(page, CONNECTIONS))
        self._take("segments", summed(page, SEGMENTS))
        self._take(
            "longest gap of the broker's loop", summed(page, "tidemark_event_loop_longest_gap_ms")
        )
        now = time.monotonic()
        for name, metric in GAPS.items():
            count = summed(page, metric)
            before, then = self._gaps.get(name, (count, now))
            self._gaps[name] = count, now
            if now > then:
                self._take(name, (count - before) * 60 / (now - then))

    def _take(self, name: str, value: float) -> None:
        self.add(name, value, *ALLOWED[name])


def scraped(http: str) -> str:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=PAGE_S) as answer:
        return str(answer.read().decode())


def summed(page: str, metric: str) -> float:
    """Of all the label values of a metric; 0 where it is not on the page."""
    found = re.findall(rf"^{metric}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE)
    return sum(float(value) for value in found)


def health(http: str, timeout_s: float = PAGE_S) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{http}/health", timeout=timeout_s) as answer:
        return dict(json.load(answer))
