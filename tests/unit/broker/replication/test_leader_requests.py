"""Where a leader's logs begin and end, as two answers of ListOffsets say it."""

from typing import Any, cast

import pytest

from broker.replication.following import LeaderRange, Wait
from broker.replication.leader_requests import EARLIEST, LATEST, leader_ranges
from kafka_client.connection import Connection
from kafka_client.requests import Call, NoAnswerError
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
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
    """Answers each ListOffsets by what it has for that timestamp; None: with a failure."""

    def __init__(self, answers: dict[int, dict[TopicPartition, dict[str, int]] | None]) -> None:
        self.asked: list[tuple[int, TopicPartition, int]] = []
        self._answers = answers

    def send(self, call: Call) -> None:
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


def ranges(leader: Leader | None, *names: TopicPartition) -> Any:
    connection = cast("Connection | None", leader)
    work = leader_ranges(connection, dict.fromkeys(names, 3), node_id=2, timeout_ms=1_000)
    while True:
        try:
            wanted = next(work)
        except StopIteration as end:
            return end.value
        assert isinstance(wanted, Until)
        wanted.wait(lambda: None)


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
