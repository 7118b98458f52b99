"""Requests sent back to back on one connection: each sees what those before it changed."""

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import batch
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient, build, create_topic, header, produce_fields

Asked = tuple[ApiKey, int, dict[str, Any]]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker) as made:
        yield made


def back_to_back(client: RawClient, *asked: Asked) -> list[Any]:
    """Send all with one call, then read the answers."""
    data = b""
    for api_key, version, fields in asked:
        message = codec.request(api_key)
        frame = header(api_key, version) + message.encode(build(message.cls, fields), version)
        data += struct.pack(">i", len(frame)) + frame
    client.send(data)
    return [client.answer(api_key, version) for api_key, version, _ in asked]


def new_name() -> str:
    return f"pipelined-{uuid.uuid4().hex[:8]}"


def test_a_topic_is_there_for_what_follows_its_creation(client: RawClient) -> None:
    for _ in range(5):
        name = new_name()
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        names = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        created, found = back_to_back(
            client,
            (ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 10_000}),
            (ApiKey.METADATA, 4, names),
        )
        assert [created.topics[0].error_code, found.topics[0].error_code] == [0, 0]


def test_deleted_records_are_gone_for_what_follows(client: RawClient) -> None:
    name = new_name()
    create_topic(client, name)
    earliest = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
    records = [{"name": name, "partitions": [{"partition_index": 0, "offset": 2}]}]
    produced, _, found = back_to_back(
        client,
        (ApiKey.PRODUCE, 9, produce_fields(name, bytes(batch(b"a", b"b", b"c")))),
        (ApiKey.DELETE_RECORDS, 1, {"topics": records, "timeout_ms": 10_000}),
        (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": earliest}),
    )
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert found.topics[0].partitions[0].offset == 2


def test_a_setting_is_changed_for_what_follows(client: RawClient) -> None:
    name = new_name()
    create_topic(client, name)
    config = {"name": "retention.ms", "config_operation": 0, "value": "4321"}
    resource = {"resource_type": 2, "resource_name": name}
    _, described = back_to_back(
        client,
        (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            0,
            {"resources": [resource | {"configs": [config]}], "validate_only": False},
        ),
        (
            ApiKey.DESCRIBE_CONFIGS,
            1,
            {"resources": [resource | {"configuration_keys": ["retention.ms"]}]},
        ),
    )
    assert [each.value for each in described.results[0].configs] == ["4321"]
