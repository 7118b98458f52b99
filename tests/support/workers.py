"""Tests in several worker processes: who runs what, what comes first, when it is time to end.

A worker of pytest-xdist takes a file of tests at a time, with the brokers that they share. Files
that use one kind of server go to one worker, which starts it. All else takes free ports and folders
of its own, so that tests run side by side, but for those marked `alone`: they measure a time, and
no other worker runs a test meanwhile.
"""

import fcntl
import gc
import math
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

UNTIL = "TIDEMARK_TESTS_UNTIL"
"""Seconds of the epoch after which no test begins, nor one that by its mark would end later."""

SECONDS = {"long": 30.0, "rounds": 5.0}
"""About how long a test takes that has this mark and does not say it."""

SECONDS_IN = {"integration": 4.0, "upgrade": 5.0, "contract": 0.7}
"""About how long a test without a mark takes in these folders of `tests`; others: nothing."""

SERVERS = {
    "spark": re.compile(r"\bsupport\.spark\b|\brun_spark\b"),
    "hdfs": re.compile(r"\bHdfs\b|fixturevalue\(.hdfs"),
    "s3": re.compile(r"\bS3Endpoint\b|fixturevalue\(.s3"),
}
"""What a file says that uses such a server; the first of them decides.

One JVM at a time: Spark gives its Python workers ten seconds to start, whatever else runs.
"""


def seconds_of(item: pytest.Item) -> float:
    """About how long a test takes, as its marks say; 0 without one."""
    marks = [(name, item.get_closest_marker(name)) for name in SECONDS]
    return max((m.kwargs.get("seconds", SECONDS[name]) for name, m in marks if m), default=0.0)


@cache
def group_of(path: Path) -> str:
    """What one worker runs together: a file, or all files that use one kind of server."""
    text = path.read_text()
    return next((name for name, says in SERVERS.items() if says.search(text)), str(path))


def longest_first(items: list[pytest.Item]) -> None:
    """Sort groups by the power of two of their length, so that no worker ends late.

    Those about as long stay in the order that they had, which is random.
    """
    seconds: Counter[str] = Counter()
    said: dict[Path, float] = {}
    for item in items:
        folder = next((part for part in item.path.parts if part in SECONDS_IN), "")
        if lasts := item.get_closest_marker("lasts"):
            said[item.path] = lasts.kwargs["seconds"]
        else:
            seconds[group_of(item.path)] += seconds_of(item) or SECONDS_IN.get(folder, 0.01)
    for path, of_file in said.items():
        seconds[group_of(path)] += of_file
    length = {group: math.floor(math.log2(total)) for group, total in seconds.items()}
    items.sort(key=lambda item: length[group_of(item.path)], reverse=True)


def shuffle_groups(items: list[pytest.Item], seed: int) -> None:
    """Sort groups in an order that the seed decides, each as likely as any to be first."""
    groups = sorted({group_of(item.path) for item in items})
    random.Random(seed).shuffle(groups)
    place = {group: number for number, group in enumerate(groups)}
    items.sort(key=lambda item: place[group_of(item.path)])


def seed_of(config: pytest.Config) -> int | None:
    """That of pytest-randomly, the same in all processes of a run; None without it."""
    seed = config.getoption("randomly_seed", None)
    return seed if isinstance(seed, int) else None


class Order:
    """Plugin of every process: which groups of tests come first; none begins too late.

    The longest do. In a run that has an end any may: those left out are others each time.
    """

    # After pytest-randomly, before pytest-xdist tells its workers' order.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        seed = seed_of(config)
        if UNTIL not in os.environ:
            longest_first(items)
        elif seed is not None:
            shuffle_groups(items, seed)

    def pytest_collection_finish(self) -> None:
        """Spare the collector the thousands of tests: they stay until the end."""
        gc.collect()
        gc.freeze()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        until = os.environ.get(UNTIL)
        if until and time.time() + seconds_of(item) > float(until):
            item.add_marker(pytest.mark.skip("no time left for it"))  # reported at its own line

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        seed = seed_of(terminalreporter.config)
        if seed is not None:
            terminalreporter.write_line(f"replay this order: --randomly-seed={seed}")


class Turns:
    """Lets tests marked `alone` run while no other worker runs one.

    Two locks on files: a test holds `running`, shared or alone; `turn` is held while it waits for
    that, so that a test that wants to be alone is not passed by for ever.
    """

    def __init__(self, directory: Path) -> None:
        self._turn, self._running = directory / "turn", directory / "running"

    @contextmanager
    def taken(self, *, alone: bool) -> Iterator[None]:
        """Hold the right to run."""
        with self._running.open("w") as running, ExitStack() as until_running:
            turn = until_running.enter_context(self._turn.open("w"))
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            until_running.close()
            yield


class OfTheRun:
    """Plugin of the process that hands tests to workers."""

    def __init__(self) -> None:
        self._locks = tempfile.TemporaryDirectory(prefix="tidemark-tests-")

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which may be missing
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["locks"] = self._locks.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadScopeScheduling

        class Groups(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return group_of(config.rootpath / nodeid.partition("::")[0])

        config.option.loadscopereorder = False  # not by the number of tests: the longest first
        return Groups(config, log)

    def pytest_unconfigure(self) -> None:
        self._locks.cleanup()


class OfAWorker:
    """Plugin of a worker process: its tests take turns with those of the others."""

    def __init__(self, directory: Path) -> None:
        self._turns = Turns(directory)

    # The outermost: a test's time limit does not count the time that it waits.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._turns.taken(alone=item.get_closest_marker("alone") is not None):
            return (yield)


def register(config: pytest.Config) -> None:
    """Register the plugins that this process needs."""
    config.pluginmanager.register(Order())
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(OfAWorker(Path(config.workerinput["locks"])))
    else:
        config.pluginmanager.register(OfTheRun())
