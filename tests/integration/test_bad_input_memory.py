"""Bad input that costs memory: much is asked over one connection, and no answer is read."""

import select
import struct
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import (  # noqa: F401 - fixtures
    client,
    health_topic,
    memory_bytes,
    well_afterwards,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient, build, header

SENT_BYTES_MAX = 256 << 20
STANDSTILL_S = 1.0
GROWTH_BYTES_MAX = 48 << 20


def flood(client: RawClient, frame: bytes, pid: int) -> int:  # noqa: F811
    """Send the same request again and again until no more is taken; gives the peak of memory."""
    client.socket.setblocking(False)
    data, sent, peak = memoryview(frame * 2), 0, 0
    while sent < SENT_BYTES_MAX and select.select([], [client.socket], [], STANDSTILL_S)[1]:
        begin = sent % len(frame)
        sent += client.socket.send(data[begin : begin + len(frame)])
        peak = max(peak, memory_bytes(pid))
    return peak


def metadata_of(topics: int) -> Mapping[str, Any]:
    names = [{"name": f"none-{i:025}"} for i in range(topics)]
    return {"topics": names, "allow_auto_topic_creation": False}


@pytest.mark.parametrize("topics", [1_500, 2_500, 15_000])
def test_bad_input_large_requests_whose_answers_nobody_reads(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    topics: int,
) -> None:
    """Frames of 50 KiB to 0.5 MiB, each answered with about as much."""
    message = codec.request(ApiKey.METADATA)
    body = message.encode(build(message.cls, metadata_of(topics)), 4)
    request = header(ApiKey.METADATA, 4) + body
    frame = struct.pack(">i", len(request)) + request
    with RawClient(broker) as first:
        first.send(frame)
        first.receive_frame()
        before = memory_bytes(broker.pid)
        peak = flood(client, frame, broker.pid)
        assert peak - before < GROWTH_BYTES_MAX
        first.send(frame)
        first.receive_frame()
