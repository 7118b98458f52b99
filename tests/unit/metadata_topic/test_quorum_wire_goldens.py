"""What Apache Kafka's controllers say means the same here, and is said in the same bytes."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_protocol.wire.api_keys import ApiKey, response_header_version
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from metadata_topic.quorum.log.fetched import NO_DATA, checked_prefix
from metadata_topic.quorum.wire.requests import Refused, admit, write_request
from metadata_topic.quorum.wire.responses import read_answer, records_of, write_answer
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity
from metadata_topic.raft.messages import FetchRequest, Node, Request, Standing
from tests.support.samples.protocol_golden import controller_frames, frames

IDENTITY = WireIdentity("tidemarkPeerClusterId0", "CONTROLLER")
STANDING = Standing(2, 1, Node(1, "127.0.0.1", 24101))
"""Of the recorded controllers."""

RECORDED = [frame for frame in controller_frames() if frame["api_key"] in VERSIONS]
OF_KAFKAS_REPLICAS = [
    frame
    for api in ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot")
    for frame in frames(api)
    if (frame["request_json"]["header"]["clientId"] or "").startswith("raft-client-")
]

KAFKA_FAILS = {
    "snapshot: other topic",
    "snapshot: partition 1",
    "snapshot: two topics",
    "snapshot: negative position",
    "snapshot: negative bytes",
}
"""Kafka answers -1 for want of a null check."""
KAFKA_HAS_NO_LIMIT = {"fetch: negative bytes"}


class Recorded:
    """One recorded pair, decoded."""

    def __init__(self, frame: dict[str, Any]) -> None:
        asked, answered = (bytes.fromhex(frame[key]) for key in ("request_hex", "response_hex"))
        header = read_request_header(asked)
        self.api_key, self.version = ApiKey(header.api_key), header.api_version
        self.request_bytes = asked[header.body_offset :]
        self.request, _ = request(self.api_key).decode(self.request_bytes, self.version)
        start = 4 + response_header_version(self.api_key, self.version)
        self.response_bytes = answered[start:]
        self.response, _ = response(self.api_key).decode(answered, self.version, start)

    def admitted(self) -> Request | Refused:
        return admit(self.api_key, self.version, self.request, IDENTITY, lambda: STANDING)

    def encoded(self, answer: Any) -> bytes:
        return response(self.api_key).encode(answer, self.version)


def name(frame: dict[str, Any]) -> str:
    return f"{frame['name']} {frame['version']} by the {frame['asked']}"


def is_refused(frame: dict[str, Any]) -> bool:
    return isinstance(Recorded(frame).admitted(), Refused)


ADMITTED = [frame for frame in RECORDED if not is_refused(frame)]
REFUSED = [frame for frame in RECORDED if is_refused(frame)]


@pytest.mark.parametrize("frame", ADMITTED, ids=name)
def test_an_answer_is_read_and_said_again_in_the_same_bytes(frame: dict[str, Any]) -> None:
    recorded = Recorded(frame)
    asked = recorded.admitted()
    assert not isinstance(asked, Refused)
    is_fetch = isinstance(asked, FetchRequest)
    checked = checked_prefix(records_of(recorded.response)) if is_fetch else NO_DATA

    answer = read_answer(asked, recorded.response, checked)

    if recorded.response.error_code:  # of FetchSnapshot: Kafka fails for want of a null check
        assert recorded.api_key == ApiKey.FETCH_SNAPSHOT
        assert (answer.error, answer.standing) == (-1, Standing(asked.epoch))
    else:
        assert recorded.encoded(write_answer(answer, recorded.version)) == recorded.response_bytes


@pytest.mark.parametrize(
    "frame", [f for f in REFUSED if f["name"] not in KAFKA_FAILS | KAFKA_HAS_NO_LIMIT], ids=name
)
def test_what_is_refused_unseen_is_refused_by_kafka_in_the_same_bytes(
    frame: dict[str, Any],
) -> None:
    recorded = Recorded(frame)
    refused = recorded.admitted()
    assert isinstance(refused, Refused)
    for topic in getattr(refused.answer, "responses", []):
        topic.partitions[0].log_start_offset = 0  # Kafka adds where its log begins
    assert recorded.encoded(refused.answer) == recorded.response_bytes


def test_nothing_passes_that_kafka_refuses_unseen() -> None:
    refused_by_kafka = {
        frame["name"] for frame in ADMITTED if Recorded(frame).response.error_code not in (0, -1)
    }
    assert refused_by_kafka == set()


def test_where_kafka_fails_there_is_an_answer() -> None:
    for frame in RECORDED:
        if frame["name"] in KAFKA_FAILS:
            recorded = Recorded(frame)
            assert recorded.response.error_code == -1
            refused = recorded.admitted()
            assert isinstance(refused, Refused)
            topics = refused.answer.topics
            code = topics[0].partitions[0].error_code if topics else refused.answer.error_code
            assert code == (99 if frame["name"] == "snapshot: negative position" else 42)


def test_requests_of_kafkas_replicas_are_made_in_the_same_bytes() -> None:
    versions = set()
    for frame in OF_KAFKAS_REPLICAS:
        recorded = Recorded(frame)
        asked = recorded.admitted()
        assert not isinstance(asked, Refused)
        written = write_request(asked, recorded.version, IDENTITY)
        assert request(recorded.api_key).encode(written, recorded.version) == recorded.request_bytes
        versions.add((recorded.api_key, recorded.version))
    assert versions == {(key, known.last) for key, known in VERSIONS.items()}


def test_a_null_cluster_id_is_nobodys_and_passes() -> None:
    recorded = Recorded(next(f for f in RECORDED if f["name"] == "pre-vote"))
    recorded.request.cluster_id = None
    assert not isinstance(recorded.admitted(), Refused)


def test_the_leaders_address_is_that_of_our_listener() -> None:
    begin = Recorded(next(f for f in OF_KAFKAS_REPLICAS if "53, " in str(f["request_json"])))
    asked = begin.admitted()
    assert asked.leader == Node(2, "127.0.0.1", 33102)  # type: ignore[union-attr]
    other = admit(
        begin.api_key,
        begin.version,
        begin.request,
        replace(IDENTITY, listener_name="OTHER"),
        lambda: STANDING,
    )
    assert other.leader is None  # type: ignore[union-attr]
