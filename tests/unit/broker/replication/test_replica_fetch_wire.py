"""A follower's Fetch, packed and walked by hand, against the codec of all messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replication import fetch_wire
from broker.replication.fetch_session import Asked, PartitionId, Question
from broker.replication.fetch_wire import FetchAnswer, FetchTerms, PartitionAnswer, encoded, walked
from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from local_log.leader_epoch_cache import EpochEnd
from runtime.work import STEP_WORK, at_once

ASK, ANSWER = request(ApiKey.FETCH), response(ApiKey.FETCH)
TERMS = FetchTerms(node_id=7, wait_ms=500, min_bytes=3, max_bytes=1000, partition_bytes=100)
INT, LONG = st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1)
VERSIONS = st.integers(fetch_wire.VERSIONS.first, fetch_wire.VERSIONS.last)
IDS = st.tuples(st.sampled_from([bytes([n]) * 16 for n in range(4)]), st.integers(0, 300))
ASKED = st.builds(Asked, INT, LONG, INT, LONG, LONG)
PARTS = st.tuples(
    st.integers(-1, 130), LONG, LONG, st.none() | st.tuples(INT, LONG), st.binary(max_size=300)
)


@given(st.dictionaries(IDS, ASKED), st.lists(IDS, unique=True), VERSIONS, st.integers(0, 2**31 - 1))
def test_a_packed_question_is_what_the_codec_reads(
    asked: dict[PartitionId, Asked], forgotten: list[PartitionId], version: int, epoch: int
) -> None:
    question = Question(55, epoch, asked, tuple(forgotten))
    body = at_once(encoded(question, TERMS, broker_epoch=41, wait_ms=9))(version)
    read, end = ASK.decode(body, version)
    assert end == len(body)
    replica = read.replica_state if version >= 15 else read
    assert replica.replica_id == 7
    assert version < 15 or replica.replica_epoch == 41
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (9, 3, 1000)
    assert (read.session_id, read.session_epoch, read.isolation_level) == (55, epoch, 0)
    assert read.rack_id == ""
    found = {
        (topic.topic_id, one.partition): Asked(
            one.current_leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.log_start_offset,
            one.high_watermark if version >= 18 else asked[topic.topic_id, one.partition][-1],
        )
        for topic in read.topics
        for one in topic.partitions
    }
    assert found == asked
    assert all(one.partition_max_bytes == 100 for topic in read.topics for one in topic.partitions)
    assert {
        (topic.topic_id, index)
        for topic in read.forgotten_topics_data
        for index in topic.partitions
    } == set(forgotten)


def made(parts: dict[PartitionId, Any], version: int, *, for_consumers: bool = False) -> bytes:
    """An answer by the codec."""
    topic, top = ANSWER.cls.Responses, []
    for (topic_id, index), (error, high_watermark, log_start, diverging, records) in parts.items():
        one = topic.Partitions(
            partition_index=index,
            error_code=error,
            high_watermark=high_watermark,
            log_start_offset=log_start,
            records=records,
        )
        if diverging is not None:
            end = topic.Partitions.DivergingEpoch
            one.diverging_epoch = end(epoch=diverging[0], end_offset=diverging[1])
        if for_consumers:
            aborted = topic.Partitions.AbortedTransactions
            one.aborted_transactions = [aborted(producer_id=1, first_offset=2)] * 3
            one.preferred_read_replica = 4
            one.current_leader = topic.Partitions.CurrentLeader(leader_id=3, leader_epoch=9)
        top.append(topic(topic_id=topic_id, partitions=[one]))
    body = ANSWER.cls(error_code=70, session_id=5, responses=top, throttle_time_ms=8)
    if for_consumers and version >= 16:
        body.node_endpoints = [ANSWER.cls.NodeEndpoints(node_id=1, host="h", port=1, rack="r")]
    return bytes(ANSWER.encode(body, version))


@given(st.dictionaries(IDS, PARTS, max_size=12), VERSIONS, st.booleans(), st.integers(0, 9))
def test_a_walked_answer_is_what_the_codec_wrote(
    parts: dict[PartitionId, Any], version: int, for_consumers: bool, position: int
) -> None:
    frame = bytes(position) + made(parts, version, for_consumers=for_consumers)
    found = at_once(walked(memoryview(frame), position))
    assert found == FetchAnswer(
        70,
        5,
        {
            key: PartitionAnswer(
                key,
                error,
                high_watermark,
                log_start,
                None if diverging in {None, (-1, -1)} else EpochEnd(*diverging),
                memoryview(records),
            )
            for key, (error, high_watermark, log_start, diverging, records) in parts.items()
        },
    )


ONE = {(b"t" * 16, 3): (0, 10, 1, (2, 5), b"records")}


def test_an_answer_that_is_cut_anywhere_or_too_long_is_refused() -> None:
    whole = made(ONE, 16, for_consumers=True)
    for end in range(len(whole)):
        with pytest.raises(MalformedMessageError):
            at_once(walked(memoryview(whole[:end]), 0))
    with pytest.raises(MalformedMessageError):
        at_once(walked(memoryview(whole + b"\0"), 0))


def test_records_are_views_of_the_frame() -> None:
    frame = memoryview(bytearray(made(ONE, 17)))
    [one] = at_once(walked(frame, 0)).partitions.values()
    assert one.records.obj is frame.obj


def test_a_partition_that_is_answered_twice_is_refused() -> None:
    topic = ANSWER.cls.Responses
    twice = topic(topic_id=b"t" * 16, partitions=[topic.Partitions(partition_index=1)] * 2)
    frame = bytes(ANSWER.encode(ANSWER.cls(responses=[twice]), 13))
    with pytest.raises(MalformedMessageError, match="twice"):
        at_once(walked(memoryview(frame), 0))


def test_a_count_that_cannot_be_is_refused_before_it_is_believed() -> None:
    frame = bytes(10) + b"\xff\xff\xff\xff\x0f" + bytes(50)
    with pytest.raises(MalformedMessageError, match="do not fit"):
        at_once(walked(memoryview(frame), 0))


def test_thousands_of_partitions_are_packed_and_walked_in_steps() -> None:
    count = 5_000
    asked = {(b"t" * 16, n): Asked(1, 2, 3, 4, 5) for n in range(count)}
    steps = encoded(Question(0, 0, asked), TERMS, broker_epoch=1, wait_ms=0)
    assert sum(1 for _ in steps) >= count // STEP_WORK * 5
    frame = made(dict.fromkeys(asked, (0, 1, 0, None, b"")), 18)
    assert sum(1 for _ in walked(memoryview(frame), 0)) >= count // STEP_WORK * 5
