"""Reads of a followed partition: by all that the metadata topic held at the question, or not."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import ReadAnswer
from rlmm.api import MetadataNotReadyError
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import Pair, bytes_of, error_of

NINE = int(ErrorCode.REPLICA_NOT_AVAILABLE)
FOLLOWED = {"at_follower": 1}


@pytest.fixture
def followed(pair: Pair) -> Pair:
    """A partition that another broker has copied, and which is followed from now on."""
    pair.log.leader_epoch += 1
    pair.assign(is_leader=False, leader_epoch=pair.log.leader_epoch)
    return pair


class Ends:
    """Says when the metadata are caught up."""

    def __init__(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Future[None]] = []
        monkeypatch.setattr(pair.metadata, "catch_up", self.catch_up)

    def catch_up(self, partition: TopicIdPartition) -> "Future[None]":
        self.asked.append(Future())
        return self.asked[-1]


def test_a_followed_partition_is_read(followed: Pair) -> None:
    received = followed.read(5, max_bytes=250, **FOLLOWED)
    assert values_of(bytes_of(received)).keys() == {(1, 5), (1, 6)}


def test_each_read_waits_until_the_metadata_are_caught_up(
    followed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Ends(followed, monkeypatch)
    for number in (1, 2):
        asked = followed.ask_to_read(5, **FOLLOWED)
        followed.pump()
        assert len(ends.asked) == number
        assert not asked.done()
        ends.asked[-1].set_result(None)
        followed.pump()
        assert values_of(bytes_of(asked.result(0)))


def test_metadata_that_are_late_give_9_at_the_deadline(
    followed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Ends(followed, monkeypatch)
    asked = followed.ask_to_read(5, wait_ms=500, **FOLLOWED)
    followed.pump()
    followed.scheduler.advance(499)
    followed.pump()
    assert not asked.done()
    followed.scheduler.advance(1)
    followed.pump()
    assert error_of(asked.result(0)) == NINE
    ends.asked[-1].set_result(None)
    followed.pump()  # nobody waits for it any more


def test_unreadable_metadata_give_9_at_the_deadline_and_not_at_once(
    followed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that gets it at once asks again at once."""
    ends = Ends(followed, monkeypatch)
    for number in (1, 2):
        asked = followed.ask_to_read(5, wait_ms=500, **FOLLOWED)
        followed.pump()
        assert len(ends.asked) == number
        ends.asked[-1].set_exception(MetadataNotReadyError("unreadable"))
        followed.pump()
        followed.scheduler.advance(499)
        followed.pump()
        assert not asked.done()
        followed.scheduler.advance(1)
        followed.pump()
        answer = asked.result(0)
        assert error_of(answer) == NINE
        assert isinstance(answer.message, ReadAnswer)
        assert answer.message.message.endswith("not caught up: unreadable")


def test_a_read_that_comes_while_others_catch_up_waits_for_the_next_time(
    followed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end that was asked for before it came says nothing to it."""
    ends = Ends(followed, monkeypatch)
    first, *later = [followed.ask_to_read(5, **FOLLOWED) for _ in range(3)]
    followed.pump()
    assert len(ends.asked) == 1
    ends.asked[0].set_result(None)
    followed.pump()
    assert values_of(bytes_of(first.result(0)))
    assert len(ends.asked) == 2
    assert not any(asked.done() for asked in later)
    ends.asked[1].set_result(None)
    followed.pump()
    assert all(values_of(bytes_of(asked.result(0))) for asked in later)
    assert len(ends.asked) == 2


def test_abandoned_reads_keep_nothing_while_the_metadata_topic_is_away(
    followed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Ends(followed, monkeypatch)
    for _ in range(20):
        asked = followed.ask_to_read(5, wait_ms=500, **FOLLOWED)
        followed.pump()
        followed.scheduler.advance(500)
        followed.pump()
        assert error_of(asked.result(0)) == NINE
    assert len(ends.asked) == 1
    ends.asked[0].set_result(None)
    followed.pump()
    assert len(ends.asked) == 1, "nobody waits for a second one"
    received = followed.ask_to_read(5, **FOLLOWED)
    followed.pump()
    ends.asked[1].set_result(None)
    followed.pump()
    assert values_of(bytes_of(received.result(0)))


def test_an_offset_in_no_segment_is_for_the_leader_to_validate(followed: Pair) -> None:
    received = followed.read(5, epoch=9, **FOLLOWED)
    assert isinstance(received.message, ReadAnswer)
    assert error_of(received) == NINE
    assert error_of(followed.read(5, epoch=9)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_that_is_not_assigned_gives_9(tmp_path: Path) -> None:
    assert error_of(Pair(tmp_path).read(5, **FOLLOWED)) == NINE
