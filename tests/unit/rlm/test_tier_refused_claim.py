"""A refused claim is a state: the broker hears of it however often a message or a tier is lost."""

import shutil
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import pytest
from test_tier_claim import INTERVAL_MS, NOW_MS, passes, red, start
from tier_pair import ClaimStorage, Pair

from rlm.judgement import Judgement
from rlm.messages import Ack, Connect, JudgementWithdrawn, Report


@pytest.fixture
def machine(tmp_path: Path) -> Pair:
    """A tier whose store was claimed by a copy of it; the next claim finds out."""
    (tmp_path / "data").mkdir()
    machine = start(tmp_path / "data")
    assert (machine.log.verdict, machine.log.copied) == (Judgement.SOUND, 59)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    start(tmp_path / "copy", wall_ms=NOW_MS + 10_000)
    return machine


def test_a_tier_that_starts_refused_beside_a_living_broker_tells_it(
    machine: Pair, tmp_path: Path
) -> None:
    again = Pair(
        tmp_path / "data",
        store=tmp_path / "store",
        kind=ClaimStorage,
        wall_ms=NOW_MS + 20_000,
        log=machine.log,
    )
    assert again.ask(Connect()).message == Ack()
    assert red(again), "the claim is judged before anything is assigned"
    again.assign()
    again.pump()
    assert (machine.log.verdict, machine.log.copied) == (Judgement.OPEN, -1)


def test_a_withdrawal_that_is_lost_is_sent_again(
    machine: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, lost = machine.log.report, list[Report]()

    def report(sent: Report) -> bool:
        if isinstance(sent, JudgementWithdrawn) and not lost:
            lost.append(sent)
            raise FutureTimeoutError
        return take(sent)

    monkeypatch.setattr(machine.log, "report", report)
    passes(machine, INTERVAL_MS)
    assert red(machine)
    assert lost
    passes(machine, INTERVAL_MS)
    assert (machine.log.verdict, machine.log.copied) == (Judgement.OPEN, -1)
