"""A followed partition: the tier says how far it is copied, on the follower's own chain."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from kafka_protocol.types import EpochEntry
from rlm.link.messages import ValidationWithdrawn
from rlmm.api import MetadataNotReadyError
from rsm_plugins.testing import Operation
from tests.support.tier.pair import NAMES, Pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Three segments of 20 records were copied while this broker led; another one leads now."""
    pair = Pair(tmp_path)
    pair.log.fill(3, records=20)
    pair.assign()
    assert pair.log.copied == 59
    pair.log.new_epoch()
    return pair


def follow(pair: Pair) -> None:
    pair.assign(is_leader=False)
    pair.pump()


def interval(pair: Pair) -> None:
    pair.scheduler.advance(60_000)
    pair.pump()


def test_a_follower_hears_what_is_copied_and_nothing_is_written_for_it(pair: Pair) -> None:
    written, calls = len(pair.metadata.log), len(pair.storage.calls)
    follow(pair)
    assert pair.log.copied == 59
    pair.log.fill(2, records=20)
    interval(pair)
    assert pair.log.copied == 59, "its leader has not copied them"
    assert (len(pair.metadata.log), len(pair.storage.calls)) == (written, calls)
    assert pair.calls(Operation.COPY) == 3
    assert pair.log.log_start == 0


def test_it_is_told_again_what_the_broker_has_forgotten(pair: Pair) -> None:
    """The first batch of a leader epoch makes it forget; no copy may come for long after that."""
    follow(pair)
    pair.log.copied = -1
    interval(pair)
    assert pair.log.copied == 59


def test_a_segment_that_is_not_wholly_on_its_own_chain_does_not_count(pair: Pair) -> None:
    """It followed a leader that had other records from 25 on: 20 to 39 is one segment."""
    pair.log.chain = [EpochEntry(1, 0), EpochEntry(pair.log.leader_epoch, 25)]
    follow(pair)
    assert pair.log.copied == 19


def test_what_its_leader_copies_is_told_at_the_next_interval(pair: Pair) -> None:
    pair.log.fill(1, records=20)
    pair.assign()
    assert pair.log.copied == 79
    end = len(pair.metadata.log)
    kept = [event for event, _ in pair.metadata.log]
    pair.log.new_epoch()
    pair.metadata.lose(end - 1)  # its FINISHED is not in the topic yet
    follow(pair)
    pair.scheduler.advance(0)
    pair.pump()
    assert pair.log.copied == 59
    pair.metadata.land(kept[-1])
    interval(pair)
    assert pair.log.copied == 79


def test_after_lost_records_it_is_told_at_once_to_keep_what_it_has(pair: Pair) -> None:
    follow(pair)
    before = len(pair.log.reports)
    pair.metadata.lose(len(pair.metadata.log) - 1)
    pair.pump()  # no time passes
    assert pair.log.reports[before] == ValidationWithdrawn(*NAMES, pair.log.leader_epoch)
    assert pair.log.copied < 59
    interval(pair)
    assert pair.log.copied == 39


def test_a_topic_that_cannot_be_read_is_unhealthy_and_asked_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def fails(_partition: object) -> Future[None]:
            failed: Future[None] = Future()
            failed.set_exception(MetadataNotReadyError("no broker answers"))
            return failed

        patched.setattr(pair.metadata, "catch_up", fails)
        follow(pair)
        (reason,) = pair.reasons()
        assert "no broker answers" in reason
        assert pair.log.copied == -1
    interval(pair)
    assert pair.reasons() == []
    assert pair.log.copied == 59


def test_an_ended_role_tells_nothing_any_more(pair: Pair) -> None:
    follow(pair)
    pair.log.new_epoch()
    pair.assign()
    assert pair.log.copied == 59
    before = len(pair.log.questions)
    interval(pair)
    asked = {one.leader_epoch for one in pair.log.questions[before:]}
    assert asked == {pair.log.leader_epoch}


def test_no_thread_waits_for_the_topic_and_one_that_is_late_is_unhealthy(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes share the catch-up that is under way: as long as the topic is away it is one."""
    asked: list[Future[None]] = []
    with monkeypatch.context() as patched:

        def catch_up(_partition: object) -> Future[None]:
            asked.append(Future())
            return asked[-1]

        patched.setattr(pair.metadata, "catch_up", catch_up)
        follow(pair)
        assert pair.workers.turn() == 0
        assert pair.reasons() == []
        for _ in range(10):
            interval(pair)
        (reason,) = pair.reasons()
        assert "not read to its end in 180 s" in reason
        assert (len(asked), pair.log.copied) == (1, -1)
    asked[0].set_result(None)  # of before this pass: it says nothing to it
    pair.pump()
    assert (pair.reasons(), pair.log.copied) == ([], 59)
