"""Passes that are asked for: their end is told, and time that was moved counts."""

from dataclasses import replace
from pathlib import Path

from rlm.link.endpoint import Received
from rlm.link.messages import Ack, Configure, Configured, Reconfigure, RunPasses, Unassign
from rlm.maintenance.assigned_partition import CountDown, PassEnds
from rlm.service import TierReceiver
from rsm_plugins.testing import Operation
from runtime.clock import ShiftedClock
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.tier.pair import NAMES, Pair


def test_what_is_closed_is_copied_when_the_answer_comes(pair: Pair) -> None:
    pair.log.fill(1)
    assert pair.log.copied == 59
    assert pair.ask(RunPasses()).message == Ack()
    assert pair.log.copied == 62


def test_a_pass_that_runs_already_does_not_count(pair: Pair) -> None:
    pair.log.fill(1)
    pair.workers.held.add("rlm-copier")
    pair.scheduler.advance(31_000)  # its pass has begun, and is held
    asked = pair.broker.ask(RunPasses())
    pair.pump()
    assert not asked.done()
    pair.workers.held.clear()
    pair.pump()
    pair.log.fill(1)
    assert not asked.done()
    pair.scheduler.advance(1)
    pair.pump()
    assert asked.result(0).message == Ack()
    assert pair.log.copied == 65


def test_a_failing_pass_ends_as_well(pair: Pair) -> None:
    pair.storage.down = True
    pair.log.fill(1)
    before = pair.calls(Operation.COPY)
    assert pair.ask(RunPasses()).message == Ack()
    assert pair.calls(Operation.COPY) == before + 1


def test_nobody_waits_for_a_partition_that_has_gone(pair: Pair) -> None:
    pair.workers.held |= {"rlm-copier", "rlm-expiration"}
    asked = pair.broker.ask(RunPasses())
    pair.link.pump()
    assert not asked.done()
    pair.ask(Unassign(*NAMES, 1))
    assert asked.result(0).message == Ack()
    assert pair.ask(RunPasses()).message == Ack(), "there is no partition"


def test_the_wall_clock_moves_with_the_settings(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    clock = ShiftedClock(pair.clock)
    ports = replace(simulated(clock=ManualClock()), clock=clock)
    receiver = TierReceiver(pair._plugins, lambda _: pair.workers, ports, pair.receiver._link)
    answers: list[object] = []
    for ask, offset_ms in ((Configure, 5_000), (Reconfigure, 9_000)):
        message = ask(replace(pair.config, wall_offset_ms=offset_ms))
        receiver(Received(message), lambda answer, files=(): answers.append(answer))
        pair.pump()
        assert clock.offset_ms == offset_ms
    assert isinstance(answers[0], Configured)
    assert answers[1] == Ack()


def test_those_who_wait_are_told_once_by_the_pass_that_began_after_them() -> None:
    told: list[str] = []
    ends = PassEnds()
    CountDown(0, lambda: told.append("none"))
    ends.begun()
    ends.wait(CountDown(1, lambda: told.append("one")))
    ends.ended()
    assert told == ["none"]
    ends.begun()
    ends.wait(CountDown(1, lambda: told.append("two")))
    ends.ended()
    ends.ended()
    assert told == ["none", "one"]
    ends.cancelled()
    assert told == ["none", "one", "two"]
