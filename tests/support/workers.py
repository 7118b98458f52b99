"""Tests in several worker processes: who runs what, what comes first, when it is time to end.

A worker of pytest-xdist takes a file of tests at a time, with the brokers that they share. Files
that use one kind of server go to one worker, which starts it. All else takes free ports and folders
of its own, so that tests run side by side, but for those marked `alone`: they measure a time, and
no other worker runs a test meanwhile.

Nothing here waits without an end. A test that does not end with its time limit ends its process,
which prints all stacks; the test counts as failed, and another worker takes the rest of its file.
SIGTERM ends the run, and the summary names the tests that it did not finish.
"""

import faulthandler
import fcntl
import gc
import math
import os
import random
import re
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.rounds import IS_PROVING

UNTIL = "TIDEMARK_TESTS_UNTIL"
"""Seconds of the epoch after which no test begins, nor one that by its mark would end later."""

TURN = "TIDEMARK_TURN"
"""A number that differs from run to run: which third of the files comes first."""

THIRDS, SALT = 3, 1886
"""The salt makes the thirds about as long."""

LEFT_OUT = "no time left for it"

SECONDS = {"long": 30.0, "rounds": 5.0}
"""About how long a test takes that has this mark and does not say it; `rounds`: where we prove."""

SECONDS_IN = {"integration": 4.0, "upgrade": 5.0, "contract": 0.7}
"""About how long a test without a mark takes in these folders of `tests`; others: nothing."""

GRACE_SECONDS = 120.0
"""After its time limit, or a failure, a test has so long to clean up before its process ends."""

NO_TURN = pytest.StashKey[str]()
"""Why a test did not get its turn."""

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
    marks = [(n, item.get_closest_marker(n)) for n in SECONDS if n != "rounds" or IS_PROVING]
    return max((m.kwargs.get("seconds", SECONDS[name]) for name, m in marks if m), default=0.0)


def seconds_max_of(item: pytest.Item) -> float:
    """After how long pytest-timeout raises in a test."""
    if mark := item.get_closest_marker("timeout"):
        return float(mark.args[0])
    return float(item.config.getoption("timeout") or item.config.getini("timeout") or 300)


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


def third_of(path: Path) -> int:
    """In which third a file is: by its name, so that it stays there whatever files come and go."""
    return zlib.crc32(f"{SALT}{path.name}".encode()) % THIRDS


def by_turn(items: list[pytest.Item], turn: int) -> None:
    """Sort files so that those of this turn's third come first, then those of the next."""
    items.sort(key=lambda item: (third_of(item.path) - turn) % THIRDS)


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

    The longest do. In a run that has an end a third of the files, by turns, or any group: others
    are excluded each time.
    """

    # After pytest-randomly, before pytest-xdist tells its workers' order.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        seed = seed_of(config)
        if TURN in os.environ:
            longest_first(items)
            by_turn(items, int(os.environ[TURN]))
        elif UNTIL not in os.environ:
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
            item.add_marker(pytest.mark.skip(LEFT_OUT))  # reported at its own line

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped = terminalreporter.getreports("skipped")
        excluded = [one.nodeid for one in skipped if LEFT_OUT in str(one.longrepr)]
        if excluded:
            files = sorted({test.partition("::")[0] for test in excluded})
            terminalreporter.write_line(
                f"no time left for {len(excluded)} tests of {len(files)} files: {', '.join(files)}"
            )
        seed = seed_of(terminalreporter.config)
        if seed is not None:
            terminalreporter.write_line(f"replay this order: --randomly-seed={seed}")


class Turns:
    """Lets tests marked `alone` run while no other worker runs one.

    Two locks on files: a test holds `running`, shared or alone; `turn` is held while it waits for
    that, so that a test that wants to be alone is not passed by for ever. Both are locks of the
    process: a forked child that outlives its test holds none.
    """

    def __init__(self, directory: Path) -> None:
        self._turn, self._running = directory / "turn", directory / "running"
        self._holders = directory / "holders"
        self._holders.mkdir(exist_ok=True)

    @contextmanager
    def taken(self, test: str, seconds_max: float, *, alone: bool) -> Iterator[None]:
        """Hold the right to run.

        In the main thread of a process only: SIGALRM ends the wait.

        Raises:
            TimeoutError: it was not free for so long; names the tests that run.
        """
        holder = self._holders / str(os.getpid())
        with self._running.open("a+") as running:
            with self._turn.open("a+") as turn, self._limited(seconds_max):
                fcntl.lockf(turn, fcntl.LOCK_EX)
                fcntl.lockf(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            holder.write_text(test)
            try:
                yield
            finally:
                holder.write_text("")

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        def give_up(*_: object) -> None:
            said = {path.name: path.read_text() for path in self._holders.iterdir()}
            tests = [f"{said[pid]} (process {pid})" for pid in said if said[pid] and _is_alive(pid)]
            raise TimeoutError(f"no turn within {seconds:g} s, these run: {', '.join(tests)}")

        before = signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _is_alive(pid: str) -> bool:
    return Path("/proc", pid).exists()


class OfTheRun:
    """Plugin of the process that hands tests to workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._locks = tempfile.TemporaryDirectory(prefix="tidemark-tests-")
        self._groups: Any = None
        self._unfinished: list[str] = []

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which may be missing
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["locks"] = self._locks.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from xdist.scheduler import LoadScopeScheduling

        class Groups(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return group_of(config.rootpath / nodeid.partition("::")[0])

            def remove_node(self, node: Any) -> str | None:
                """Hand the rest of a dead worker's tests to others, but not the one that it ran.

                The library's own way runs that one again and again, as it kills each worker.
                """
                units = self.assigned_work.pop(node)
                left = [(unit, test) for unit in units.values() for test in unit if not unit[test]]
                if not left:
                    return None
                unit, crashed = left[0]
                unit[crashed] = True
                self.workqueue.update({k: v for k, v in units.items() if not all(v.values())})
                for other in self.assigned_work:
                    self._reschedule(other)
                return crashed

        config.option.loadscopereorder = False  # not by the number of tests: the longest first
        self._groups = Groups(config, log)
        signal.signal(signal.SIGTERM, self._end)
        return self._groups

    def _end(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        of_nodes = [
            [test for unit in units.values() for test, done in unit.items() if not done]
            for units in self._groups.assigned_work.values()
        ]
        running = [tests[0] for tests in of_nodes if tests]
        waiting = [test for unit in self._groups.workqueue.values() for test in unit]
        waiting += [test for tests in of_nodes for test in tests[1:]]
        files = sorted({test.partition("::")[0] for test in waiting})
        self._unfinished = [f"not finished: {test}" for test in running]
        self._unfinished.append(
            f"not begun: {len(waiting)} tests of {', '.join(files) or 'no file'}"
        )
        raise KeyboardInterrupt("ended by SIGTERM")

    def pytest_keyboard_interrupt(self) -> None:
        """Before all that ends a session: deleting old directories of tests alone may take long."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        for line in self._unfinished:
            terminal.write_line(line)

    def pytest_unconfigure(self) -> None:
        self._locks.cleanup()


class OfAWorker:
    """Plugin of a worker process: its tests take turns with those of the others."""

    def __init__(self, directory: Path) -> None:
        self._turns = Turns(directory)
        self._longest = 0.0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._longest = max(map(seconds_max_of, session.items), default=0.0) + GRACE_SECONDS

    # The outermost: a test's time limit does not count the time that it waits.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        alone = item.get_closest_marker("alone") is not None
        # Another may wait to be alone until the running ones end, and then runs itself.
        with ExitStack() as turn:
            try:
                turn.enter_context(self._turns.taken(item.nodeid, 2 * self._longest, alone=alone))
            except TimeoutError as e:
                item.stash[NO_TURN] = str(e)
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if reason := item.stash.get(NO_TURN, None):
            pytest.fail(reason, pytrace=False)


class Watchdog:
    """Plugin of every process that runs tests: one that outlives its time limit ends the process.

    pytest-timeout raises once, only where Python code runs, and never after a failure. A test that
    hangs in C, in its tear-down or in what `asyncio.run` cleans up meets this one.
    """

    def __init__(self, stderr: int) -> None:
        self._stderr = stderr

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._start(seconds_max_of(item) + GRACE_SECONDS)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    # After those of pytest, which cancels it, and of pytest-timeout, which cancels its own.
    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        if isinstance(node, pytest.Item):
            self._start(GRACE_SECONDS)

    def _start(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)


def register(config: pytest.Config) -> None:
    """Register the plugins that this process needs."""
    assert sys.__stderr__ is not None
    stderr = os.dup(sys.__stderr__.fileno())  # not yet captured
    config.pluginmanager.register(Order())
    config.pluginmanager.register(Watchdog(stderr))
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(OfAWorker(Path(config.workerinput["locks"])))
    else:
        config.pluginmanager.register(OfTheRun(config))
