"""The real cleaner process, and the broker's side of it: it dies, hangs, ends for want of work."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from local_log.cleaner import process as process_module
from local_log.cleaner.log_pass import CleanerSettings, Done, Group, Job
from local_log.cleaner.process import (
    Alive,
    Failed,
    Link,
    LinkEnded,
    Pace,
    ProcessWorker,
    WorkerLostError,
    decode_answer,
    send_job,
)
from runtime.child_process import ChildProcess, start_child
from runtime.clock import SystemClock
from runtime.disk import Disk, OpenFile
from runtime.executors import ThreadPool
from tests.support.sim.clock import ManualClock
from tests.support.worlds.cleaned_logs import commit, job_of, open_compacted, put


@pytest.fixture
def worker() -> Iterator[ProcessWorker]:
    one = ProcessWorker(silence_max_s=20)
    yield one
    one.close()


def job_for(path: Path, number: int = 1, *, bytes_per_second: float = 0.0) -> Job:
    log = open_compacted(path)
    for at in range(40):
        put(log, (f"k{at % 3}", "v" * 100))
    commit(log)
    job = job_of(log, None, CleanerSettings(bytes_per_second=bytes_per_second), number=number)
    log.close()
    return job


def answers(worker: ProcessWorker, job: Job) -> list[object]:
    worker.begin(job)
    found: list[object] = []
    while not found or not isinstance(found[-1], Done | Failed):
        answer = worker.next_answer()
        if not isinstance(answer, Alive):
            found.append(answer)
    return found


def test_a_job_is_done_in_another_process(worker: ProcessWorker, tmp_path: Path) -> None:
    first = answers(worker, job_for(tmp_path / "a"))
    assert [type(answer) for answer in first[:-1]] == [Group] * (len(first) - 1)
    assert isinstance(first[-1], Done)
    pid = worker.pid
    assert pid != os.getpid()
    job = job_for(tmp_path / "b", 2)
    (tmp_path / "b" / f"{0:020}.log").unlink()
    [failed] = answers(worker, job)
    assert worker.pid == pid, "the same one does the next job"
    assert isinstance(failed, Failed)
    assert not failed.is_damage
    assert f"{0:020}.log" in failed.reason


def test_answers_to_an_earlier_job_are_passed_over(worker: ProcessWorker, tmp_path: Path) -> None:
    worker.begin(job_for(tmp_path / "a"))
    found = answers(worker, job_for(tmp_path / "b", 2))
    assert isinstance(found[-1], Done)
    assert {answer.number for answer in found} == {2}  # type: ignore[attr-defined]


def test_one_that_was_killed_is_lost_and_another_does_the_next_job(
    worker: ProcessWorker, tmp_path: Path
) -> None:
    answers(worker, job_for(tmp_path / "a"))
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    worker.begin(job_for(tmp_path / "b", 2))
    worker.kill()
    with pytest.raises(WorkerLostError, match="ended with -9"):
        worker.next_answer()
    assert isinstance(answers(worker, job_for(tmp_path / "c", 3))[-1], Done)


def test_one_that_hangs_is_killed(tmp_path: Path) -> None:
    worker = ProcessWorker(silence_max_s=5)
    answers(worker, job_for(tmp_path / "a"))
    assert worker.pid is not None
    pid = worker.pid
    os.kill(pid, signal.SIGSTOP)
    assert worker._sock is not None
    assert worker._sock.gettimeout() == 5
    worker._sock.settimeout(0.01)
    worker.begin(job_for(tmp_path / "b", 2))
    with pytest.raises(WorkerLostError, match=f"cleaner process {pid}: it said nothing for 5 s"):
        worker.next_answer()
    assert worker.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_ended_for_want_of_work_is_replaced(tmp_path: Path) -> None:
    """Also where the job was sent while it was ending."""
    started: list[ChildProcess] = []

    def start(link_fd: int) -> ChildProcess:
        if started:
            return start_child("local_log.cleaner.process", [str(link_fd)], descriptors=[link_fd])
        code = f"import socket; socket.socket(fileno={link_fd}).recv(1, socket.MSG_PEEK)"
        started.append(_python(code, link_fd))
        return started[0]

    worker = ProcessWorker(start)
    assert isinstance(answers(worker, job_for(tmp_path / "a"))[-1], Done)
    assert started[0].exit_code() == 0
    worker.close()


class SlowDisk(Disk):
    """An fsync returns when the test lets it."""

    def __init__(self) -> None:
        self.continues = threading.Event()

    def fsync(self, file: OpenFile) -> None:
        assert self.continues.wait(30)
        super().fsync(file)


def test_it_says_that_it_is_there_while_it_waits_for_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "ALIVE_EVERY_S", 0.01)
    ours, its = socket.socketpair()
    ours.settimeout(20)
    disk, pool = SlowDisk(), ThreadPool("serving", 1)
    served = pool.submit(process_module.serve, Link(its), disk, SystemClock())
    send_job(ours, job_for(tmp_path / "a"))
    lines = ours.makefile("rb")
    alive = [decode_answer(next(lines)) for _ in range(50)]
    assert {type(answer) for answer in alive} == {Alive}
    assert {answer.number for answer in alive} == {1}
    assert not disk.continues.is_set(), "all that was said while the fsync lasts"
    disk.continues.set()
    assert any(isinstance(decode_answer(line), Done) for line in lines)
    lines.close()
    ours.close()
    with pytest.raises(LinkEnded):
        served.result(20)
    pool.shutdown()
    its.close()


@pytest.mark.parametrize("moves", [True, False])
def test_a_stalled_pass_makes_room_for_others_and_is_no_fault_of_its_log(
    tmp_path: Path, *, moves: bool
) -> None:
    said = "".join(
        f'{{"type":"alive","number":1,"steps":{number if moves else 7}}}\n' for number in range(10)
    )

    def start(link_fd: int) -> ChildProcess:
        code = f"""
import socket
link = socket.socket(fileno={link_fd})
link.recv(1)
link.sendall({said.encode()!r})
while link.recv(1 << 20):
    pass
"""
        return _python(code, link_fd)

    clock = ManualClock()
    worker = ProcessWorker(start, silence_max_s=20, stall_max_s=60, clock=clock)
    worker.begin(job_for(tmp_path / "a"))

    def listen() -> None:
        for _ in range(10):
            assert isinstance(worker.next_answer(), Alive)
            clock.advance(10_000)

    if moves:
        listen()
    else:
        with pytest.raises(WorkerLostError, match="has not moved for 60 s") as lost:
            listen()
        assert not lost.value.in_job
        assert worker.pid is None
    worker.close()


def _python(code: str, fd: int) -> ChildProcess:
    """A process that takes the link, waits for a job, and ends."""

    class Child:
        def __init__(self) -> None:
            self._child = subprocess.Popen([sys.executable, "-c", code], pass_fds=(fd,))
            self.pid = self._child.pid

        def kill(self) -> None:
            self._child.kill()

        def exit_code(self) -> int | None:
            return self._child.poll()

        def wait(self, timeout_s: float) -> int | None:
            return self._child.wait(timeout_s)

    return Child()


def test_no_process_is_started_after_the_stop(worker: ProcessWorker, tmp_path: Path) -> None:
    worker.stop()
    with pytest.raises(WorkerLostError, match="the broker stops"):
        worker.begin(job_for(tmp_path / "a"))
    assert worker.pid is None


def test_a_process_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    def refuse(_: int) -> ChildProcess:
        raise OSError(11, "no more processes")

    with pytest.raises(WorkerLostError, match="no more processes"):
        ProcessWorker(refuse).begin(job_for(tmp_path / "a"))


def test_it_ends_when_no_job_comes(
    worker: ProcessWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, its = socket.socketpair()
    monkeypatch.setattr(process_module, "IDLE_MS", 1)
    monkeypatch.setattr(process_module, "give_way", lambda _: None)
    process_module.main(its.detach())
    assert ours.recv(1) == b""
    ours.close()


def test_it_ends_with_the_broker_and_not_only_when_it_is_done(tmp_path: Path) -> None:
    ours, its = socket.socketpair()
    clock = ManualClock()
    pace = Pace(job_for(tmp_path / "a"), Link(its), clock)
    pace.moved(1000)
    ours.close()
    with pytest.raises(LinkEnded):
        pace.moved(1000)
    its.close()


def test_it_keeps_to_its_rate_and_counts_that_it_continues(tmp_path: Path) -> None:
    class WaitingLink(Link):
        """Waits by moving the clock."""

        def wait(self, wait_ms: float) -> None:
            clock.advance(int(wait_ms))

    ours, its = socket.socketpair()
    clock = ManualClock()
    began = clock.monotonic_ms()
    pace = Pace(job_for(tmp_path / "a", bytes_per_second=1000), WaitingLink(its), clock)
    for _ in range(10):
        pace.moved(500)
    assert 4900 <= clock.monotonic_ms() - began <= 5100
    assert pace.steps >= 10
    with suppress(OSError):
        ours.close()
    its.close()


def test_a_process_that_is_gone_is_collected(worker: ProcessWorker, tmp_path: Path) -> None:
    answers(worker, job_for(tmp_path / "a"))
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    process = worker._process
    assert process is not None
    assert process.wait(20) == -9
    worker.collect()
    assert worker.pid is None
