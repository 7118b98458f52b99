"""A test that forks, is interrupted or starts the broker again: the broker stays its own."""

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tidemark
from tests.support.brokers.embedded import assert_nothing_left, facts_in, put, read
from tests.support.brokers.embedding_suite import environment
from tests.support.brokers.process import until
from tidemark.embedded.nodes import free_port

pytestmark = pytest.mark.lasts(seconds=10)

FORKS = """
import os, signal, sys
from pathlib import Path
import tidemark
from tests.support.brokers.embedded import told

broker = tidemark.Broker().start()
told(broker, Path(sys.argv[1]))
living = os.fork()
if living == 0:  # outlives the broker, and has the pipes of its guardian
    signal.pause()
ending = os.fork()
if ending == 0:
    for change in (broker.stop, broker.kill, broker.pause, broker.restart):
        try:
            change()
        except tidemark.BrokerError as error:
            assert "fork" in str(error), error
        else:
            os._exit(1)
    assert broker.status()["stage"] == "running"
    broker.close()  # as the end of a `with` does that the child is in
    os._exit(0 if not broker.is_running else 2)
_, status = os.waitpid(ending, 0)
assert status == 0, status
assert broker.is_running and broker.log_file.exists()
assert broker.status()["stage"] == "running"
guardian = broker._nodes.guarded._process
broker.close()
os.kill(living, signal.SIGKILL)
sys.exit(guardian.returncode)  # -9 where it had to be killed after a time-out
"""


@pytest.mark.smoke
def test_a_fork_neither_ends_the_broker_nor_keeps_it_from_its_end(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    command = [sys.executable, "-c", FORKS, str(facts)]
    run = subprocess.run(command, env=environment(tmp_path), timeout=120, check=False)
    assert run.returncode == 0
    assert_nothing_left(facts_in(facts))


class Interrupted(Exception):
    """Thrown into a call, as Ctrl-C or a time-out of the suite does."""


def interrupt(*_: object) -> None:
    raise Interrupted


@pytest.mark.parametrize("looks", [True, False])
def test_an_interrupted_call_leaves_no_answer_for_the_next_one(*, looks: bool) -> None:
    """The guardian stands still: the call waits when the signal comes, its answer comes later."""
    with tidemark.Broker(topics=["a"]) as broker:
        put(broker, "a", [b"one"])
        guarded = broker._nodes.guarded
        assert guarded is not None
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            os.kill(guarded._process.pid, signal.SIGSTOP)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                broker.pause()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            os.kill(guarded._process.pid, signal.SIGCONT)
        # Whoever reads next gets it: a look at the broker's life, or the next request.
        if looks:
            until(lambda: select.select([guarded._from], [], [], 0)[0], "the answer is there")
            assert broker.is_running
        with pytest.raises(tidemark.BrokerError, match=r"is paused; resume\(\)"):
            broker.advance("1d")
        broker.resume()
        assert broker.status()["stage"] == "running"
        broker.restart()
        assert read(broker, "a", 1) == [b"one"]


def test_a_restart_keeps_the_clock_and_drops_the_faults() -> None:
    with tidemark.Broker(topics=["kept", "deleted"]) as broker:
        old = broker.faults.add(api="Produce", delay_ms=1)
        broker.control("advance", ms=86_400_000)
        admin = broker.admin()
        admin.delete_topics(["deleted"])["deleted"].result(30)
        broker.restart()
        assert broker.status()["offset_ms"] == 86_400_000
        assert "deleted" not in admin.list_topics(timeout=30).topics
        new = broker.faults.add(api="Fetch", delay_ms=1)
        assert new.id == old.id
        for ask in (old.remove, old.wait, lambda: old.hits):
            with pytest.raises(tidemark.BrokerError, match="started again since"):
                ask()
        with old:
            pass
        assert [one.id for one in broker.faults.list()] == [new.id]
        broker.close()
        assert broker.start().status()["offset_ms"] == 0, "another broker"
        assert "deleted" in broker.admin().list_topics(timeout=30).topics


def test_a_port_is_found_without_the_rng_of_the_suite() -> None:
    state = random.getstate()
    assert free_port() != free_port()
    assert random.getstate() == state
