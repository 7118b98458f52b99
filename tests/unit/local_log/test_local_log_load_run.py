"""Logs are opened by several threads at once: counting, stopping, failing, what is left then."""

import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from local_log.errors import LoadStopped
from local_log.manager.load_run import LOG_EVERY_MS, LoadRun
from local_log.manager.loading import Loaded
from local_log.manager.log_dirs import LogManager
from local_log.segment import reading as segment_reading
from runtime.disk import OpenFile
from runtime.executors import ThreadPools
from tests.support.brokers.process import until
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import append
from tests.support.worlds.log_manager import IDS, Host

DEADLINE_S = 20


class GatedDisk(FaultyDisk):
    """Reads of `.log` files below `gated` wait until the gate is open; counts those that began."""

    def __init__(self) -> None:
        super().__init__()
        self.gated = "nothing"
        self.gate = threading.Event()
        self.reads: Counter[str] = Counter()
        self.waiting = 0
        self._changed = threading.Condition()

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        path = Path(file.path)
        if path.suffix == ".log":
            with self._changed:
                self.reads[path.parent.name] += 1
                self._changed.notify_all()
            if self.gated in str(path) and not self.gate.is_set():
                with self._changed:
                    self.waiting += 1
                    self._changed.notify_all()
                assert self.gate.wait(DEADLINE_S), "nobody opened the gate"
        return super().read_at(file, position, size)

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S)


@pytest.fixture
def pools() -> Iterator[ThreadPools]:
    made = ThreadPools()
    yield made
    made.shutdown()


@pytest.fixture
def caller() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


class Killed:
    """Directories with logs that were not closed, and a manager on real threads."""

    def __init__(self, root: Path, pools: ThreadPools, *, dirs: int = 1, logs: int = 6) -> None:
        self.disk = GatedDisk()
        self.host = Host(root, dirs=dirs, disk=self.disk)
        self.pools = pools
        manager = self.host.start()
        self.partitions = [TopicPartition("orders", number) for number in range(logs)]
        for tp in self.partitions:
            log = manager.create(*tp, IDS["orders"])
            for _ in range(5):
                append(log)
        self.before = {tp: manager.directory_of(tp) for tp in self.partitions}
        manager.close(clean=False)
        self.disk.reads.clear()

    def manager(self) -> LogManager:
        ports = replace(self.host.ports, disk=self.disk, executors=self.pools)
        return LogManager(self.host.paths, lambda _topic: self.host.config, ports)

    def has_mark(self) -> bool:
        return any((path / ".kafka_cleanshutdown").exists() for path in self.host.paths)


def test_every_partition_is_counted_once_and_all_before_it_ends(
    tmp_path: Path, pools: ThreadPools, caller: ThreadPoolExecutor
) -> None:
    killed = Killed(tmp_path, pools)
    killed.disk.gated = "orders-5"
    manager = killed.manager()
    run = manager.load_run(threads=2)
    assert run.stage() == ""
    running = caller.submit(run.run)
    others = {f"orders-{number}" for number in range(5)}
    killed.disk.until(lambda: others <= set(killed.disk.reads) and killed.disk.waiting == 1)
    until_counted(run, 5)
    assert run.stage() == "recovering 5 of 6 partitions"
    killed.disk.gate.set()
    loaded = running.result(DEADLINE_S)
    assert run.stage() == "recovering 6 of 6 partitions"
    assert [log.topic_partition for log, _ in loaded.opened] == killed.partitions
    assert [log.log_end_offset for log, _ in loaded.opened] == [5] * 6
    assert manager.all() == []
    manager.take(loaded)
    assert len(manager.all()) == 6


def until_counted(run: LoadRun, done: int) -> None:
    """The count follows the last read of a partition by a moment."""
    until(lambda: run.done == done, f"{done} are done")


def test_partitions_that_are_refused_or_put_aside_are_counted_too(
    tmp_path: Path, pools: ThreadPools
) -> None:
    killed = Killed(tmp_path, pools)
    killed.disk.fail(["read_at"], path_part="orders-1/", error=errno.EACCES)
    manager = killed.manager()
    wanted = dict.fromkeys(killed.partitions)
    run = manager.load_run(wanted.get)
    loaded = run.run()
    assert (run.done, run.total) == (6, 6)
    assert len(loaded.unwanted) + len(loaded.refused) == 6


def test_as_many_at_once_as_the_directory_has_threads(
    tmp_path: Path, pools: ThreadPools, caller: ThreadPoolExecutor
) -> None:
    killed = Killed(tmp_path, pools)
    killed.disk.gated = "orders-"
    running = caller.submit(killed.manager().load_run(threads=3).run)
    killed.disk.until(lambda: killed.disk.waiting == 3)
    assert len(killed.disk.reads) == 3
    killed.disk.gate.set()
    assert len(running.result(DEADLINE_S).opened) == 6


def test_a_slow_directory_does_not_hold_up_the_other(
    tmp_path: Path, pools: ThreadPools, caller: ThreadPoolExecutor
) -> None:
    killed = Killed(tmp_path, pools, dirs=2)
    slow = {tp for tp, directory in killed.before.items() if directory.path == killed.host.paths[0]}
    assert 0 < len(slow) < 6
    killed.disk.gated = str(killed.host.paths[0])
    run = killed.manager().load_run(threads=1)
    running = caller.submit(run.run)
    killed.disk.until(lambda: killed.disk.waiting == 1)
    until_counted(run, 6 - len(slow))
    killed.disk.gate.set()
    assert len(running.result(DEADLINE_S).opened) == 6


def stopped(killed: Killed, caller: ThreadPoolExecutor) -> tuple[LogManager, "Future[Loaded]"]:
    """A run that is stopped while all its threads are in a log."""
    manager = killed.manager()
    run = manager.load_run(threads=2)
    running = caller.submit(run.run)
    killed.disk.until(lambda: killed.disk.waiting == 2)
    run.stop()
    killed.disk.reads.clear()
    killed.disk.gate.set()
    return manager, running


def test_a_stopped_run_opens_no_other_partition_and_marks_nothing_clean(
    tmp_path: Path, pools: ThreadPools, caller: ThreadPoolExecutor
) -> None:
    killed = Killed(tmp_path, pools)
    killed.disk.gated = "orders-"
    manager, running = stopped(killed, caller)
    with pytest.raises(LoadStopped):
        running.result(DEADLINE_S)
    assert len(killed.disk.reads) <= 2
    assert not manager.is_loaded
    manager.close(clean=True, broker_epoch=7)
    assert not killed.has_mark()
    again = killed.manager()
    again.load(threads=2)
    assert not again.dirs[0].was_clean
    assert {log.topic_partition: log.log_end_offset for log in again.all()} == dict.fromkeys(
        killed.partitions, 5
    )


def test_a_run_that_is_stopped_ends_inside_a_long_segment(
    tmp_path: Path,
    pools: ThreadPools,
    caller: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_reading, "_WINDOW_BYTES", 150)
    killed = Killed(tmp_path, pools, logs=2)
    killed.disk.gated = "orders-"
    _, running = stopped(killed, caller)
    with pytest.raises(LoadStopped):
        running.result(DEADLINE_S)
    assert sum(killed.disk.reads.values()) == 0, "the reads at work were the last ones"


def test_what_a_thread_did_not_expect_ends_the_run(tmp_path: Path, pools: ThreadPools) -> None:
    killed = Killed(tmp_path, pools)
    manager = killed.manager()

    def wanted(tp: TopicPartition) -> None:
        if tp.partition == 3:
            raise ZeroDivisionError("a mistake of ours")

    with pytest.raises(ZeroDivisionError):
        manager.load_run(wanted, threads=2).run()
    assert not manager.is_loaded


def test_logs_of_a_directory_that_fails_are_offline_and_the_others_open(
    tmp_path: Path, pools: ThreadPools
) -> None:
    killed = Killed(tmp_path, pools, dirs=2, logs=12)
    broken = killed.host.paths[1]
    inside = {tp for tp, directory in killed.before.items() if directory.path == broken}
    last = max(f"orders-{tp.partition}" for tp in inside)
    killed.disk.fail(["read_at"], path_part=f"{broken}/{last}/", error=errno.EIO)
    manager = killed.manager()
    manager.load(threads=2)
    assert not manager.dirs[1].works
    logs = {tp: manager.get(tp) for tp in killed.partitions}
    for tp, log in logs.items():
        if tp in inside:
            assert tp in manager.refused if log is None else log.is_offline
        else:
            assert log is not None
            assert not log.is_offline
            assert log.log_end_offset == 5
    assert any(logs[tp] for tp in inside), "some were open before it failed"


def test_a_directory_in_which_all_threads_fail_at_once_goes_offline_once(
    tmp_path: Path,
    pools: ThreadPools,
    caller: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    killed = Killed(tmp_path, pools)
    killed.disk.gated = "orders-"
    manager = killed.manager()
    offline = []
    manager.failures.on_offline = offline.append
    running = caller.submit(manager.load_run(threads=4).run)
    killed.disk.until(lambda: killed.disk.waiting == 4)
    killed.disk.fail(["read_at"], path_part="orders-", error=errno.EIO)
    killed.disk.gate.set()
    loaded = running.result(DEADLINE_S)
    assert set(loaded.refused) == set(killed.partitions)
    assert offline == manager.dirs
    said = [one for one in caplog.records if "log directory is offline" in one.getMessage()]
    assert len(said) == 1


def test_a_long_run_says_in_the_log_how_far_it_is(
    tmp_path: Path, pools: ThreadPools, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    killed = Killed(tmp_path, pools)
    run = killed.manager().load_run(
        lambda _tp: killed.host.clock.advance(LOG_EVERY_MS // 2)  # type: ignore[func-returns-value]
    )
    run.run()
    said = [one.getMessage() for one in caplog.records if one.getMessage().startswith("recovering")]
    assert [line for line in said if " of 6 " in line] == [
        f"recovering {done} of 6 partitions" for done in (2, 4, 6)
    ]
