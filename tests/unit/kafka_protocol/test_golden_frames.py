"""Frames recorded from Apache Kafka 4.3.1 and real clients decode, and encode to the same bytes."""

from pathlib import Path

import pytest

from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.codec import message, request, response
from kafka_protocol.wire.framing import read_request_header, response_parts
from tests.support.samples.golden_files import GOLDEN
from tests.support.samples.protocol_golden import frames, kafka_json

RECORDED = sorted(Path(path).stem for path in (GOLDEN / "frames").glob("*.jsonl"))
OURS = {"".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey}
LEFT_OUT = {
    # share groups and streams groups are not part of this project
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "DeleteShareGroupState",
    "DescribeShareGroupOffsets",
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "ReadShareGroupStateSummary",
    "ShareAcknowledge",
    "ShareFetch",
    "ShareGroupDescribe",
    "ShareGroupHeartbeat",
    "StreamsGroupDescribe",
    "StreamsGroupHeartbeat",
    "WriteShareGroupState",
}


def test_only_share_and_streams_groups_are_left_out() -> None:
    assert set(RECORDED) - OURS == LEFT_OUT


@pytest.mark.parametrize("api", [api for api in RECORDED if api in OURS])
def test_requests_decode_as_kafka_does_and_encode_to_the_same_bytes(api: str) -> None:
    for recorded in frames(api):
        frame = bytes.fromhex(recorded["request_hex"])
        header = read_request_header(frame)
        printed = recorded["request_json"]["header"]
        assert header[:4] == (
            printed["requestApiKey"],
            printed["requestApiVersion"],
            printed["correlationId"],
            printed["clientId"],
        )
        schema = request(header.api_key)
        if header.api_version > schema.max_version:  # ApiVersions 9: the body is not for us
            continue
        body, end = schema.decode(frame, header.api_version, header.body_offset)
        assert kafka_json(schema, body, header.api_version) == recorded["request_json"]["body"]
        assert len(frame) - end == recorded.get("request_trailing_bytes", 0)
        assert schema.encode(body, header.api_version) == frame[header.body_offset : end]


@pytest.mark.parametrize("api", [api for api in RECORDED if api in OURS])
def test_responses_decode_as_kafka_does_and_encode_to_the_same_bytes(api: str) -> None:
    for recorded in frames(api):
        if recorded["response_hex"] is None:
            continue
        frame = bytes.fromhex(recorded["response_hex"])
        version = recorded.get("response_version", recorded["version"])
        _, header_version = header_versions(recorded["api_key"], recorded["version"])
        header, start = message("ResponseHeader").decode(frame, header_version)
        assert header.correlation_id == recorded["response_json"]["header"]["correlationId"]
        schema = response(recorded["api_key"])
        body, end = schema.decode(frame, version, start)
        assert end == len(frame)
        assert kafka_json(schema, body, version) == recorded["response_json"]["body"]
        parts, total_bytes = response_parts(
            header.correlation_id, header_version, schema.encode_parts(body, version)
        )
        assert b"".join(parts) == len(frame).to_bytes(4, "big") + frame  # type: ignore[arg-type]
        assert total_bytes == len(frame) + 4


def test_request_headers_decode_by_schema_as_by_hand() -> None:
    for recorded in frames("Metadata"):
        frame = bytes.fromhex(recorded["request_hex"])
        by_hand = read_request_header(frame)
        version, _ = header_versions(by_hand.api_key, by_hand.api_version)
        header, end = message("RequestHeader").decode(frame, version)
        assert (header.client_id, end) == (by_hand.client_id, by_hand.body_offset)
