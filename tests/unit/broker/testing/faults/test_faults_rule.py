"""Faults as a test says them: read, refused, and said again."""

from typing import Any

import pytest

from broker.testing.faults.rule import Cut, FaultError, RequestFault, parse
from broker.testing.faults.store import described, parse_store_fault
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey

SERVED = [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.CREATE_TOPICS, ApiKey.HEARTBEAT]


@pytest.mark.parametrize("name", ["ListOffsets", "LIST_OFFSETS", "listoffsets", 2])
def test_an_api_has_its_name_in_any_case_or_its_number(name: object) -> None:
    assert parse({"api": name, "delay_ms": 5}, SERVED) == RequestFault(api=2, delay_ms=5)


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "not_leader_or_follower", 6])
def test_an_error_has_its_name_or_its_number(code: object) -> None:
    fault = parse({"api": "Produce", "error": code}, SERVED)
    assert fault.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_every_field_is_read_and_said_again() -> None:
    said = {
        "api": "Produce",
        "topic": "t",
        "partition": 3,
        "client_id": "c",
        "delay_ms": 7,
        "cut": "after_serving",
        "count": 2,
        "probability": 0.5,
        "seed": -4,
    }
    fault = parse(said, SERVED)
    assert fault.cut is Cut.AFTER_SERVING
    assert fault.described() == said
    said = {"api": "Fetch", "error": "UNKNOWN_SERVER_ERROR"}
    assert parse(said, SERVED).described() == said


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({}, "needs error, delay_ms or cut"),
        ({"api": "Produce"}, "needs error, delay_ms or cut"),
        ({"error": "NOT_COORDINATOR"}, "error needs api"),
        ({"api": "Produce", "error": "NOT_COORDINATOR", "cut": "after_serving"}, "exclude"),
        ({"api": "Produce", "error": "NONE"}, "error='NONE'"),
        ({"api": "Produce", "error": 4711}, "error=4711"),
        ({"api": "Produce", "error": True}, "error=True"),
        ({"api": "Vote", "delay_ms": 1}, "served are Produce, Fetch, ListOffsets, Heartbeat"),
        ({"api": True, "delay_ms": 1}, "api=True"),
        ({"cut": True}, "cut=True"),
        ({"cut": "sometimes"}, "before_serving, after_serving"),
        ({"delay_ms": -1}, "delay_ms=-1"),
        ({"delay_ms": "5"}, "delay_ms='5'"),
        ({"delay_ms": 3_600_001}, "from 0 to 3600000"),
        ({"delay_ms": 1, "count": 0}, "count=0"),
        ({"delay_ms": 1, "probability": 0}, "probability=0"),
        ({"delay_ms": 1, "probability": 1.1}, "probability=1.1"),
        ({"delay_ms": 1, "topic": ""}, "topic=''"),
        ({"delay_ms": 1, "partition": 1}, "partition needs topic"),
        ({"delay_ms": 1, "api": "Heartbeat", "topic": "t"}, "Heartbeat name no topics"),
        (
            {"delay_ms": 1, "api": "CreateTopics", "topic": "t", "partition": 1},
            "CreateTopics name no partitions",
        ),
        ({"delay_ms": 1, "delay": 1}, "delay: no such field; there are: api, client_id"),
    ],
)
def test_what_cannot_be_is_refused_with_field_and_remedy(said: dict[str, Any], named: str) -> None:
    with pytest.raises(FaultError, match=named.replace("(", "\\(")):
        parse(said, SERVED)


def test_a_fault_of_the_store_is_read_and_said_again() -> None:
    said = {"kind": "slow", "call": "read", "topic": "t", "delay_ms": 5, "count": 1, "seed": 3}
    assert described(parse_store_fault(said)) == said
    assert described(parse_store_fault({"kind": "hang"})) == {"kind": "hang"}


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({}, "slow, refuse, hang, lose_put_answer"),
        ({"kind": "slow"}, "slow needs delay_ms"),
        ({"kind": "hang", "call": "put"}, "copy, read, index, delete"),
        ({"kind": "lose_put_answer", "call": "read"}, "only copy"),
        ({"kind": "hang", "id": 7}, "id: no such field"),
    ],
)
def test_a_fault_of_the_store_that_cannot_be_is_refused(said: dict[str, Any], named: str) -> None:
    with pytest.raises(FaultError, match=named):
        parse_store_fault(said)
