"""Answers with errors: each API that is served, in each version, as another library reads them."""

import copy
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from broker.handlers.docs import handler_class
from broker.handlers.handler_table import APIS
from broker.testing.faults.book import Entry
from broker.testing.faults.errors import ErrorAnswers
from broker.testing.faults.naming import named_by
from broker.testing.faults.rule import RequestFault
from broker.testing.faults.shapes import shape_of
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.samples.named_requests import codes_of, named_request
from tests.support.samples.protocol import TOPIC_ID

SERVED = sorted(handler_class(api).api_key for api in APIS)
CODE = ErrorCode.NOT_COORDINATOR
WITHOUT_A_CODE = {
    *((ApiKey.DESCRIBE_LOG_DIRS, version) for version in (1, 2)),
    *((ApiKey.ALTER_REPLICA_LOG_DIRS, version) for version in (1, 2)),
}
"""Their only refusal is an empty answer; that of the latter names no directories of the request."""
VERSIONS = [
    (key, version)
    for key in SERVED
    for version in range(codec.request(key).min_version, codec.request(key).max_version + 1)
    if (key, version) not in WITHOUT_A_CODE
]
with_each = pytest.mark.parametrize(
    ("key", "version"), VERSIONS, ids=[f"{key.name}-{version}" for key, version in VERSIONS]
)


def name_of(topic_id: bytes) -> str | None:
    return "text" if topic_id == TOPIC_ID else None


def entry(**fault: Any) -> Entry:
    return Entry(7, RequestFault(**{"error": CODE} | fault), lambda: 0.0)


def read_by_another(key: ApiKey, version: int, answer: Any) -> Any:
    encoded = codec.response(key).encode(answer, version)
    value, size = entity_reader(load_response_schema(int(key), version))(encoded, 0)
    assert size == len(encoded)
    return value


@with_each
def test_an_error_of_the_whole_request_is_read_by_another_library(
    key: ApiKey, version: int
) -> None:
    answers = ErrorAnswers(key, version, name_of)
    split = answers.split(named_request(key, version), [entry()])
    found = codes_of(read_by_another(key, version, split.answer))
    assert found, "the answer holds no code"
    assert set(found) == {CODE}
    if split.rest is not None:
        assert shape_of(key).always_served


@pytest.mark.parametrize(
    ("key", "version"), [one for one in VERSIONS if "topic" in shape_of(one[0]).names]
)
def test_an_error_of_a_topic_is_in_each_of_its_slots(key: ApiKey, version: int) -> None:
    request = named_request(key, version)
    assert named_by(key, version, request, name_of).includes("text", None)
    split = ErrorAnswers(key, version, name_of).split(request, [entry(topic="text")])
    value = read_by_another(key, version, split.answer)
    failed = codes_of(value)
    partitions = "partition" in shape_of(key).names
    groups = 2 if key == ApiKey.OFFSET_FETCH and version >= 8 else 1
    assert failed == [CODE] * groups * (4 if partitions else 2)


@pytest.mark.parametrize(
    ("key", "version"), [one for one in VERSIONS if "topic" in shape_of(one[0]).names]
)
def test_an_error_of_another_topic_leaves_a_request_as_it_is(key: ApiKey, version: int) -> None:
    request = named_request(key, version)
    before = copy.deepcopy(request)
    split = ErrorAnswers(key, version, name_of).split(request, [entry(topic="other")])
    assert codes_of(split.answer) == []
    assert split.rest == before == request


def topic_partitions(message: Any, outer: str, inner: str, name: str, index: str) -> set[Any]:
    return {
        (getattr(topic, name), getattr(one, index))
        for topic in getattr(message, outer)
        for one in getattr(topic, inner)
    }


def produce_of(**topics: list[int]) -> Any:
    cls = codec.request(ApiKey.PRODUCE).cls
    return cls(
        acks=1,
        topic_data=[
            cls.TopicData(
                name=name,
                partition_data=[cls.TopicData.PartitionData(index=one) for one in indexes],
            )
            for name, indexes in topics.items()
        ],
    )


def test_what_an_error_stands_for_is_not_served_and_the_rest_is() -> None:
    answers = ErrorAnswers(ApiKey.PRODUCE, 9, name_of)
    request = produce_of(a=[0, 1], b=[0], c=[0])
    errors = [entry(topic="a", partition=1), entry(topic="b", error=ErrorCode.CORRUPT_MESSAGE)]
    split = answers.split(request, errors)
    assert topic_partitions(split.rest, "topic_data", "partition_data", "name", "index") == {
        ("a", 0),
        ("c", 0),
    }
    served = codec.response(ApiKey.PRODUCE).cls()
    served.responses = [
        served.Responses(
            name=name,
            partition_responses=[served.Responses.PartitionResponses(index=0, base_offset=5)],
        )
        for name in ("a", "c")
    ]
    joined = answers.join(served, errors, split.answer)
    assert {
        (topic.name, one.index): (one.error_code, one.base_offset)
        for topic in joined.responses
        for one in topic.partition_responses
    } == {("a", 0): (0, 5), ("a", 1): (16, -1), ("b", 0): (2, -1), ("c", 0): (0, 5)}
    assert [topic.name for topic in joined.responses] == ["a", "c", "b"]


def test_the_first_error_counts() -> None:
    errors = [entry(topic="a"), entry(error=ErrorCode.CORRUPT_MESSAGE)]
    split = ErrorAnswers(ApiKey.PRODUCE, 9, name_of).split(produce_of(a=[0], b=[0]), errors)
    assert split.rest is None
    assert codes_of(split.answer) == [16, 2]


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_are_served_and_the_topic_fails(version: int) -> None:
    cls = codec.request(ApiKey.METADATA).cls
    request = cls(topics=[] if version == 0 else None)
    answers = ErrorAnswers(ApiKey.METADATA, version, name_of)
    errors = [entry(topic="b")]
    split = answers.split(request, errors)
    assert split.rest == request
    served = codec.response(ApiKey.METADATA).cls()
    served.brokers = [served.Brokers(node_id=1, host="h", port=9)]
    served.topics = [
        served.Topics(name=name, partitions=[served.Topics.Partitions()]) for name in "abc"
    ]
    joined = answers.join(served, errors, split.answer)
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in joined.topics] == [
        ("a", 0, 1),
        ("b", CODE, 0),
        ("c", 0, 1),
    ]
    assert len(joined.brokers) == 1


def test_all_offsets_of_a_group_are_served_and_those_of_the_topic_fail() -> None:
    cls = codec.request(ApiKey.OFFSET_FETCH).cls
    request = cls(groups=[cls.Groups(group_id="g", topics=None)])
    answers = ErrorAnswers(ApiKey.OFFSET_FETCH, 8, name_of)
    errors = [entry(topic="b")]
    split = answers.split(request, errors)
    assert split.rest == request
    served = codec.response(ApiKey.OFFSET_FETCH).cls()
    topics = [
        served.Groups.Topics(
            name=name, partitions=[served.Groups.Topics.Partitions(committed_offset=9)]
        )
        for name in "ab"
    ]
    served.groups = [served.Groups(group_id="g", topics=topics)]
    joined = answers.join(served, errors, split.answer)
    (group,) = joined.groups
    assert [
        (topic.name, one.error_code, one.committed_offset)
        for topic in group.topics
        for one in topic.partitions
    ] == [("a", 0, 9), ("b", CODE, -1)]


@pytest.mark.parametrize("version", range(4, 19))
def test_errors_of_fetch_sessions_stand_at_the_top(version: int) -> None:
    split = ErrorAnswers(ApiKey.FETCH, version, name_of).split(
        named_request(ApiKey.FETCH, version), [entry(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)]
    )
    assert (split.answer.error_code == 70) is (version >= 7)
    assert bool(split.answer.responses) is (version < 7)
