"""Metrics of a process beside what psutil says of it."""

import os

import psutil

from runtime.metrics import Registry
from runtime.process_metrics import register_build, register_process


def values(metrics: Registry) -> dict[str, float]:
    return {one.name: one.value for one in metrics.samples()}


def test_a_process_is_described_as_psutil_describes_it() -> None:
    metrics, oracle = Registry(), psutil.Process()
    register_process(metrics)
    before = oracle.cpu_times()
    found = values(metrics)
    after = oracle.cpu_times()
    assert before.user + before.system - 0.1 <= found["process_cpu_seconds_total"]
    assert found["process_cpu_seconds_total"] <= after.user + after.system + 0.1
    assert abs(found["process_start_time_seconds"] - oracle.create_time()) < 1.5
    assert abs(found["process_resident_memory_bytes"] - oracle.memory_info().rss) < 64 << 20
    assert found["process_max_fds"] == oracle.rlimit(psutil.RLIMIT_NOFILE)[0]


def test_descriptors_are_counted_as_they_are_opened() -> None:
    metrics = Registry()
    register_process(metrics, "tidemark_tier_")
    name = "tidemark_tier_process_open_fds"
    before = values(metrics)[name]
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
    try:
        assert values(metrics)[name] == before + 10
    finally:
        for one in opened:
            os.close(one)


def test_the_page_says_of_cpu_that_it_only_grows_and_which_version_runs() -> None:
    metrics = Registry()
    register_process(metrics)
    register_build(metrics)
    page = metrics.render().decode()
    assert "# TYPE process_cpu_seconds_total counter\n" in page
    assert "# TYPE process_open_fds gauge\n" in page
    assert 'tidemark_build_info{version="' in page
