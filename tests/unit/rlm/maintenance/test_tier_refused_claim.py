"""A refused claim is a state: the broker hears of it however often a message or a tier is lost."""

import shutil
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import pytest

from broker.replica.validation import Validation
from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import Ack, Connect, Report, Unassign, ValidationWithdrawn
from rlm.maintenance.claim import ClaimState
from tests.support.tier.claiming import INTERVAL_MS, NOW_MS, passes, start, unhealthy
from tests.support.tier.pair import NAMES, ClaimStorage, Pair


@pytest.fixture
def machine(tmp_path: Path) -> Pair:
    """A tier whose store was claimed by a copy of it; the next claim finds out."""
    (tmp_path / "data").mkdir()
    machine = start(tmp_path / "data")
    assert (machine.log.verdict, machine.log.copied) == (Validation.SOUND, 59)
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
    assert unhealthy(again), "the claim is validated before anything is assigned"
    again.assign()
    again.pump()
    assert (machine.log.verdict, machine.log.copied) == (Validation.OPEN, -1)


def test_a_withdrawal_that_is_lost_is_sent_again(
    machine: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, lost = machine.log.report, list[Report]()

    def report(sent: Report) -> bool:
        if isinstance(sent, ValidationWithdrawn) and not lost:
            lost.append(sent)
            raise FutureTimeoutError
        return take(sent)

    monkeypatch.setattr(machine.log, "report", report)
    passes(machine, INTERVAL_MS)
    assert unhealthy(machine)
    assert lost
    passes(machine, INTERVAL_MS)
    assert (machine.log.verdict, machine.log.copied) == (Validation.OPEN, -1)


def test_partitions_are_released_in_slices_and_departed_ones_are_skipped(
    machine: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.maintenance.manager.SLICE_PARTITIONS", 1)
    for number in (1, 2):
        machine.assign(partition=number)
    followed = list[int]()

    def follow(tip: TopicIdPartition) -> "Future[None]":
        followed.append(tip.partition)
        return Future()

    monkeypatch.setattr(machine.metadata, "follow", follow)
    machine.tier.claim.state = ClaimState.REFUSED
    machine.tier.manager.claim_changed()
    assert followed == [0]
    machine.ask(Unassign(NAMES[0], 1, machine.log.leader_epoch))
    machine.scheduler.advance(1)
    machine.scheduler.advance(1)
    assert followed == [0, 2]
