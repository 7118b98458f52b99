"""Whatever ends a test run, no process of the broker and no file of it is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tidemark
from tests.support.brokers.embedded import assert_nothing_left, facts_in
from tests.support.brokers.embedding_suite import environment, run_suite, start_suite

SIGNALS = [
    signal.SIGKILL,
    signal.SIGINT,
    pytest.param(signal.SIGTERM, marks=pytest.mark.long(seconds=3)),
]

WAITING = """
import threading
from pathlib import Path
from tests.support.brokers.embedded import told

def test_waits(tidemark_broker):
    told(tidemark_broker, Path("facts"))
    {then}
    threading.Event().wait(60)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_that_gets_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    run = start_suite(tmp_path, WAITING.format(then=""))
    facts = facts_in(tmp_path / "facts")
    run.send_signal(number)
    printed, _ = run.communicate(timeout=60)
    assert run.returncode != 0
    assert ("KeyboardInterrupt" in printed) == (number == signal.SIGINT)
    assert_nothing_left(facts)


def test_a_killed_run_whose_broker_is_paused_leaves_nothing(tmp_path: Path) -> None:
    run = start_suite(tmp_path, WAITING.format(then="tidemark_broker.pause()"))
    facts = facts_in(tmp_path / "facts")
    run.kill()
    run.communicate(timeout=60)
    assert_nothing_left(facts)


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    code, printed = run_suite(tmp_path, WAITING.format(then="assert 1 == 2"))
    assert code == 1, printed
    assert_nothing_left(facts_in(tmp_path / "facts"))


def test_what_is_left_by_a_kill_of_run_and_guardian_goes_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tmp"
    root.mkdir()
    monkeypatch.setenv("TMPDIR", str(root))
    foreign = root / "tidemark-of-somebody"
    foreign.mkdir()
    run = start_suite(tmp_path, WAITING.format(then=""))
    facts = facts_in(tmp_path / "facts")
    os.kill(facts["pids"][0], signal.SIGSTOP)  # it cannot clean up before it is killed
    run.kill()
    run.communicate(timeout=60)
    os.kill(facts["pids"][0], signal.SIGKILL)
    assert Path(facts["directory"]).parent == root
    assert Path(facts["directory"]).exists()
    with tidemark.Broker(settings={"remote.log.storage.system.enable": False}) as living:
        tidemark.Broker(start_timeout_s=60).start().close()
        assert_nothing_left(facts)
        assert living.log_file.exists(), "its guardian lives"
    assert list(root.iterdir()) == [foreign]


THREADED = """
import os, sys, threading
from pathlib import Path
import tidemark
from tests.support.brokers.embedded import told

broker = tidemark.Broker()
starting = threading.Thread(target=broker.start)
starting.start()
starting.join()
assert broker.status()["stage"] == "running"  # the thread that started it is gone, it is not
told(broker, Path(sys.argv[1]))
if os.fork() == 0:  # a child that outlives us, and has our descriptors
    os.close(0), os.close(1), os.close(2)
    threading.Event().wait(600)
    os._exit(0)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("end", ["kill", "forget"])
def test_a_broker_started_by_a_thread_ends_with_its_process(tmp_path: Path, end: str) -> None:
    facts_file = tmp_path / "facts"
    run = subprocess.Popen(
        [sys.executable, "-c", THREADED, str(facts_file), end],
        env=environment(tmp_path),
        start_new_session=True,
    )
    try:
        run.wait(60)
        assert_nothing_left(facts_in(facts_file))
    finally:
        os.killpg(run.pid, signal.SIGKILL)  # the child that was forked
