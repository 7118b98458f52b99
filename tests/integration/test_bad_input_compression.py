"""Bad input, compression.

Only headers are looked at when a client produces (docs/decisions/produce-reads-headers-only.md), so
bombs and cut streams are met by whoever opens them. Where the broker itself must open a batch, on a
compacted topic, they are refused and cost nothing.
"""

import gzip
import struct
import time
from collections.abc import Callable

import cramjam
import pytest

from kafka_protocol.records.records import build_batch
from tests.support.brokers.bad_input import (  # noqa: F401 - fixtures
    batch,
    client,
    health_topic,
    memory_bytes,
    topic,
    well_afterwards,
    with_records,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient, create_topic, log_end, produce


def snappy_claiming_two_gib() -> bytes:
    block = b"\x80\x80\x80\x80\x08" + b"x" * 20
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + struct.pack(">i", len(block)) + block


BOMBS = [
    pytest.param(1, lambda: gzip.compress(bytes(1 << 30), 9), {10}, id="gzip-bomb"),
    pytest.param(4, lambda: bytes(cramjam.zstd.compress(bytes(300 << 20))), {10}, id="zstd-bomb"),
    pytest.param(2, snappy_claiming_two_gib, {87}, id="snappy-claims-2-GiB"),
]


@pytest.fixture
def compacted(client: RawClient, topic: str) -> str:  # noqa: F811
    name = f"{topic}-compacted"
    create_topic(client, name, cleanup_policy="compact", max_message_bytes="2097152")
    return name


@pytest.mark.parametrize(("codec", "payload", "codes"), BOMBS)
def test_bad_input_bombs_are_refused_where_records_are_opened(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    compacted: str,
    codec: int,
    payload: Callable[[], bytes],
    codes: set[int],
) -> None:
    bomb = payload()
    before, began = memory_bytes(broker.pid), time.monotonic()
    answer = produce(client, compacted, with_records(codec, bomb))
    assert answer.error_code in codes
    assert log_end(client, compacted) == 0
    assert memory_bytes(broker.pid) - before < 50_000_000
    assert time.monotonic() - began < 10


def good_payload(codec: int) -> bytes:
    now = int(time.time() * 1000)
    records = [(now, b"k%d" % i, b"v" * 200, []) for i in range(50)]
    return bytes(build_batch(records, codec=codec)[61:])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_bad_input_cut_streams(
    client: RawClient,  # noqa: F811
    compacted: str,
    codec: int,
    part: float,
) -> None:
    whole = good_payload(codec)
    cut = with_records(codec, whole[: int(len(whole) * part)], count=50)
    assert produce(client, compacted, cut).error_code == 87
    assert log_end(client, compacted) == 0
    assert produce(client, compacted, with_records(codec, whole, count=50)).error_code == 0


@pytest.mark.parametrize("version", [3, 5, 6])
def test_bad_input_zstd_too_early(client: RawClient, topic: str, version: int) -> None:  # noqa: F811
    data = batch(b"x" * 100, codec=4)
    assert produce(client, topic, data, version).error_code == 76
    assert log_end(client, topic) == 0
    assert produce(client, topic, data, 7).error_code == 0
