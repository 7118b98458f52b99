"""Where a leader's logs begin and end, as its answers say it."""

from typing import Any, cast

import pytest

from broker.replication.following import LeaderRange, LocalStart, Wait
from broker.replication.leader_requests import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    leader_local_starts,
    leader_ranges,
)
from kafka_client.connection import Connection
from kafka_client.requests import Call, NoAnswerError
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import EpochEntry, TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from runtime.work import Until

ONE, OTHER = TopicPartition("t", 0), TopicPartition("u", 7)
VERSION = 9
_Response = response(ApiKey.LIST_OFFSETS).cls
_Topic = _Response.Topics
_Partition = _Topic.Partitions


def said(offset: int, error: int = 0, epoch: int = 4) -> dict[str, int]:
    return {"offset": offset, "error_code": error, "leader_epoch": epoch}


class Leader:
    """Answers each ListOffsets by what it has for that timestamp; None: with a failure.

    OffsetForLeaderEpoch it answers by `ends`: of each asked epoch, whose end and where.
    """

    def __init__(
        self,
        answers: dict[int, dict[TopicPartition, dict[str, int]] | None],
        ends: dict[int, dict[str, int]] | None = None,
    ) -> None:
        self.asked: list[tuple[int, TopicPartition, int]] = []
        self.epochs: list[tuple[int, TopicPartition, int, int]] = []
        self._answers, self._ends = answers, ends

    def send(self, call: Call) -> None:
        if call.api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
            self._send_ends(call)
            return
        body, _ = request(ApiKey.LIST_OFFSETS).decode(call.encode(VERSION), VERSION)
        partitions = [(topic.name, one) for topic in body.topics for one in topic.partitions]
        for name, one in partitions:
            place = TopicPartition(name, one.partition_index)
            self.asked.append((body.replica_id, place, one.current_leader_epoch))
        answers = self._answers[partitions[0][1].timestamp]
        if answers is None:
            call.fail(NoAnswerError, ConnectionError("lost"))
            return
        topics = [
            _Topic(
                name=tp.topic, partitions=[_Topic.Partitions(partition_index=tp.partition, **of)]
            )
            for tp, of in answers.items()
        ]
        call.finish(_Response(topics=topics))

    def _send_ends(self, call: Call) -> None:
        body, _ = request(call.api_key).decode(call.encode(4), 4)
        if self._ends is None:
            call.fail(NoAnswerError, ConnectionError("lost"))
            return
        made = response(call.api_key).cls
        topics = []
        for topic in body.topics:
            partitions = []
            for one in topic.partitions:
                place = TopicPartition(topic.topic, one.partition)
                last_sent = body.replica_id, place, one.current_leader_epoch, one.leader_epoch
                self.epochs.append(last_sent)
                end = self._ends[one.leader_epoch]
                partitions.append(made.Topics.Partitions(partition=one.partition, **end))
            topics.append(made.Topics(topic=topic.topic, partitions=partitions))
        call.finish(made(topics=topics))


def end(epoch: int, offset: int, error: int = 0) -> dict[str, int]:
    return {"leader_epoch": epoch, "end_offset": offset, "error_code": error}


def worked(work: Any) -> Any:
    while True:
        try:
            wanted = next(work)
        except StopIteration as ended:
            return ended.value
        assert isinstance(wanted, Until)
        wanted.wait(lambda: None)


def local_starts(
    leader: Leader | None, *names: TopicPartition, timestamp: int = EARLIEST_LOCAL
) -> Any:
    connection = cast("Connection | None", leader)
    epochs = dict.fromkeys(names, 9)
    return worked(leader_local_starts(connection, epochs, timestamp, node_id=2, timeout_ms=1_000))


def ranges(leader: Leader | None, *names: TopicPartition) -> Any:
    connection = cast("Connection | None", leader)
    return worked(leader_ranges(connection, dict.fromkeys(names, 3), node_id=2, timeout_ms=1_000))


def test_ranges_of_all_partitions_come_by_two_questions() -> None:
    leader = Leader({
        EARLIEST: {ONE: said(5), OTHER: said(0)},
        LATEST: {OTHER: said(8, epoch=1), ONE: said(9)},
    })  # fmt: skip
    assert ranges(leader, ONE, OTHER) == {ONE: LeaderRange(5, 9, 4), OTHER: LeaderRange(0, 8, 1)}
    assert leader.asked == [(2, ONE, 3), (2, OTHER, 3)] * 2


@pytest.mark.parametrize("lost", [EARLIEST, LATEST])
def test_a_question_without_an_answer_gives_no_range(lost: int) -> None:
    leader = Leader({EARLIEST: {ONE: said(5)}, LATEST: {ONE: said(9)}} | {lost: None})
    assert ranges(leader, ONE) == {ONE: Wait("the leader does not answer ListOffsets")}


def test_without_a_connection_there_is_no_range() -> None:
    assert ranges(None, ONE) == {ONE: Wait("the leader does not answer ListOffsets")}


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (said(-1, ErrorCode.OFFSET_NOT_AVAILABLE), "OFFSET_NOT_AVAILABLE"),
        (said(-1), "NONE"),
    ],
)
def test_an_error_or_no_offset_gives_no_range(answer: dict[str, int], name: str) -> None:
    leader = Leader({EARLIEST: {ONE: said(5), OTHER: said(1)}, LATEST: {ONE: answer}})
    reason = f"the leader answers {name}, offset -1 to ListOffsets"
    assert ranges(leader, ONE, OTHER) == {
        ONE: Wait(reason),
        OTHER: Wait("the leader does not answer ListOffsets"),
    }


# -- where its local log begins


def test_the_epoch_below_is_that_of_the_start_within_an_epoch() -> None:
    """The epoch before ended earlier: the record before the start is of the same epoch."""
    leader = Leader(
        {EARLIEST: {ONE: said(2)}, EARLIEST_LOCAL: {ONE: said(50, epoch=9)}}, {8: end(4, 30)}
    )
    assert local_starts(leader, ONE) == {ONE: LocalStart(50, 9, 2)}
    assert leader.epochs == [(2, ONE, 9, 8)]
    assert [one for one, _, _ in leader.asked] == [2, 2], "it says that a replica asks"


def test_the_epoch_below_is_the_one_before_where_an_epoch_begins() -> None:
    """Under the epoch of the start no segment holds the offset: a follower would wait for ever."""
    leader = Leader(
        {EARLIEST: {ONE: said(2)}, EARLIEST_LOCAL: {ONE: said(50, epoch=9)}}, {8: end(4, 50)}
    )
    assert local_starts(leader, ONE) == {ONE: LocalStart(50, 4, 2, (EpochEntry(9, 50),))}


def test_the_leaders_epochs_above_are_walked_through_down_to_the_start() -> None:
    """Those of partitions whose start is of the newest epoch are not asked for again."""
    starts = {ONE: said(50, epoch=6), OTHER: said(7, epoch=9)}
    ends = {9: end(9, 90), 8: end(7, 80), 6: end(6, 70), 5: end(5, 40)}
    leader = Leader({EARLIEST: {ONE: said(2), OTHER: said(0)}, EARLIEST_LOCAL: starts}, ends)
    assert local_starts(leader, ONE, OTHER) == {
        ONE: LocalStart(50, 6, 2, (EpochEntry(7, 70), EpochEntry(9, 80))),
        OTHER: LocalStart(7, 7, 0, (EpochEntry(9, 80),)),
    }
    asked = [(place, epoch) for _, place, _, epoch in leader.epochs]
    assert asked == [(ONE, 9), (OTHER, 8), (ONE, 8), (ONE, 6), (ONE, 5)]


def test_a_leader_whose_epochs_do_not_fall_is_asked_again_later() -> None:
    answers = {EARLIEST: {ONE: said(2)}, EARLIEST_LOCAL: {ONE: said(50, epoch=6)}}
    for ends in ({9: end(9, 90), 8: end(9, 80)}, {9: end(9, 90), 8: end(5, 80)}):
        found = local_starts(Leader(answers, ends), ONE)
        assert found == {ONE: Wait("the leader does not know where epoch 6 ends")}


def test_a_first_epoch_has_none_below() -> None:
    answers = {EARLIEST: {ONE: said(2)}, EARLIEST_LOCAL: {ONE: said(50, epoch=0)}}
    ends = {9: end(0, 60), -1: end(-1, -1)}
    assert local_starts(Leader(answers, ends), ONE) == {ONE: LocalStart(50, 0, 2)}


def test_what_is_not_copied_yet_is_asked_for_by_its_own_timestamp() -> None:
    leader = Leader(
        {EARLIEST: {ONE: said(2)}, EARLIEST_PENDING_UPLOAD: {ONE: said(70, epoch=6)}},
        {9: end(6, 90), 5: end(4, 30)},
    )
    found = local_starts(leader, ONE, timestamp=EARLIEST_PENDING_UPLOAD)
    assert found == {ONE: LocalStart(70, 6, 2)}


@pytest.mark.parametrize(
    ("start", "ends", "reason"),
    [
        (said(-1, ErrorCode.REPLICA_NOT_AVAILABLE), {}, "REPLICA_NOT_AVAILABLE"),
        (said(50, epoch=-1), {}, "epoch of offset 50"),
        (said(50), {9: end(-1, -1, ErrorCode.REPLICA_NOT_AVAILABLE)}, "REPLICA_NOT_AVAILABLE"),
        (said(50), None, "does not answer OffsetForLeaderEpoch"),
    ],
)
def test_a_leader_that_does_not_know_gives_no_start(
    start: dict[str, int], ends: dict[int, dict[str, int]] | None, reason: str
) -> None:
    answers = {EARLIEST: {ONE: said(2)}, EARLIEST_LOCAL: {ONE: start}}
    found = local_starts(Leader(answers, ends), ONE)[ONE]
    assert isinstance(found, Wait), found
    assert reason in found.reason
