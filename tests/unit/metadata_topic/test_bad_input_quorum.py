"""Bad input on the controllers' wire: nothing of it reaches the core, and the answer says why.

Requests are those of Kafka's own replicas, each changed in one place.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from metadata_topic.quorum.wire.requests import Refused, admit
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity
from metadata_topic.raft.messages import Standing
from tests.support.samples.protocol_golden import frames

APIS = ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot")


def asked_by_kafka(api: str) -> tuple[ApiKey, int, Any]:
    """A request of Kafka's in the newest version that is there."""
    sent = [
        frame
        for frame in frames(api)
        if (frame["request_json"]["header"]["clientId"] or "").startswith("raft-client-")
    ]
    data = max((bytes.fromhex(frame["request_hex"]) for frame in sent), key=_version)
    header = read_request_header(data)
    key = ApiKey(header.api_key)
    body, _ = request(key).decode(data[header.body_offset :], header.api_version)
    return key, header.api_version, body


def _version(data: bytes) -> int:
    return read_request_header(data).api_version


def identity_of(body: Any) -> WireIdentity:
    return WireIdentity(body.cluster_id)


def another_cluster(body: Any) -> None:
    body.cluster_id = "another"


def no_topic(body: Any) -> None:
    body.topics = []


def two_topics(body: Any) -> None:
    body.topics = [*body.topics, deepcopy(body.topics[0])]


def two_partitions(body: Any) -> None:
    topic = body.topics[0]
    topic.partitions = [*topic.partitions, deepcopy(topic.partitions[0])]


def no_partition(body: Any) -> None:
    body.topics[0].partitions = []


def another_partition(body: Any) -> None:
    partition = body.topics[0].partitions[0]
    name = "partition" if hasattr(partition, "partition") else "partition_index"
    setattr(partition, name, 1)


def another_topic(body: Any) -> None:
    topic = body.topics[0]
    for name in ("topic_name", "name"):
        if hasattr(topic, name):
            setattr(topic, name, "orders")
            return
    topic.topic_id = b"t" * 16


CHANGES: dict[Callable[[Any], None], ErrorCode] = {
    another_cluster: ErrorCode.INCONSISTENT_CLUSTER_ID,
    no_topic: ErrorCode.INVALID_REQUEST,
    two_topics: ErrorCode.INVALID_REQUEST,
    no_partition: ErrorCode.INVALID_REQUEST,
    two_partitions: ErrorCode.INVALID_REQUEST,
    another_partition: ErrorCode.INVALID_REQUEST,
    another_topic: ErrorCode.INVALID_REQUEST,
}


def codes(api_key: ApiKey, version: int, answer: Any) -> set[int]:
    """All error codes of an answer but 0, after a way over the wire."""
    data = response(api_key).encode(answer, version)
    decoded, _ = response(api_key).decode(data, version)
    topics = getattr(decoded, "responses", None) or getattr(decoded, "topics", None) or []
    found = {decoded.error_code}
    found |= {partition.error_code for topic in topics for partition in topic.partitions}
    return found - {0}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_bad_input_about_something_else_is_refused_before_the_core(
    api: str, change: Callable[[Any], None]
) -> None:
    """N105, and several topics or partitions in one request."""
    api_key, version, body = asked_by_kafka(api)
    identity = identity_of(body)
    assert not isinstance(admit(api_key, version, body, identity, lambda: Standing(3)), Refused)
    change(body)
    refused = admit(api_key, version, body, identity, lambda: Standing(3))
    assert isinstance(refused, Refused)
    assert codes(api_key, version, refused.answer) == {CHANGES[change]}


def test_bad_input_every_request_of_the_quorum_was_tried() -> None:
    assert {asked_by_kafka(api)[0] for api in APIS} == set(VERSIONS)
