"""Batches that inflate a hundredfold: what they cost a broker that must open them.

A hundred in a row, of one record or of many, to a topic whose records are validated and to one
whose batches are compressed again. The peak of the broker's memory may rise a little above that of
one good batch of the largest size.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import Codec
from kafka_protocol.records.compression import deflated
from kafka_protocol.records.records import Record, build_batch, encode_records
from tests.support.brokers.bad_input import with_records
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient, create_topic, log_end, produce

MIB = 1 << 20
MESSAGE_BYTES_MAX = 2 * MIB
BATCHES = 100
RISE_BYTES_MAX = 48 * MIB
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
INFLATED_BYTES = dict.fromkeys(CODECS, 256 * MIB) | {Codec.SNAPPY: 40 * MIB}
"""Snappy makes no more than 21 bytes of one."""


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Most memory that was resident since the last reset."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def inflating_to(codec: Codec, size_bytes: int, record_bytes: int) -> bytes:
    """A batch of equal records of zeros."""
    count, now_ms = size_bytes // record_bytes, int(time.time() * 1000)
    value = bytes(record_bytes - 32)

    def records() -> Iterator[bytes]:
        for index in range(count):
            yield encode_records([Record(index, now_ms, b"key", value, [])], 0, now_ms)

    body = b"".join(deflated(codec, records(), level=None, size_bytes=None))
    batch = with_records(codec, body, count)
    assert len(batch) <= MESSAGE_BYTES_MAX
    return batch


def topics_of(codec: Codec) -> tuple[str, str]:
    return f"validated-{codec.name}", f"again-{codec.name}"


@pytest.fixture(scope="module")
def peak_of_good(broker: BrokerProcess) -> int:
    """Makes the topics, and gives each one good batch nearly as large as may be."""
    noise = random.Random(5).randbytes(MESSAGE_BYTES_MAX - 4096)
    size = str(MESSAGE_BYTES_MAX)
    with RawClient(broker) as client:
        for codec in CODECS:
            validated, again = topics_of(codec)
            other = "lz4" if codec is Codec.GZIP else "gzip"
            create_topic(client, validated, cleanup_policy="compact", max_message_bytes=size)
            create_topic(client, again, compression_type=other, max_message_bytes=size)
            large = build_batch([(int(time.time() * 1000), b"key", noise, [])], codec=codec)
            for topic in (validated, again):
                assert produce(client, topic, large).error_code == 0
    return peak_bytes(broker.pid)


def rise_of(
    broker: BrokerProcess, codec: Codec, batches: list[bytes], peak: int, code: ErrorCode
) -> int:
    """How much further the peak is after these batches, each to one topic and to the other."""
    reset_peak(broker.pid)
    with RawClient(broker) as client:
        for batch in batches:
            for topic in topics_of(codec):
                answer = produce(client, topic, batch)
                assert answer.error_code == code, answer.error_message
    rise = peak_bytes(broker.pid) - peak
    print(f"{codec.name}: rise_mib={rise / MIB:.1f} peak_of_good_mib={peak / MIB:.1f}")
    return rise


@pytest.mark.smoke
@pytest.mark.parametrize("codec", CODECS)
def test_a_hundred_batches_that_inflate_to_256_mib_cost_little_memory(
    broker: BrokerProcess, peak_of_good: int, codec: Codec
) -> None:
    size_bytes = INFLATED_BYTES[codec]
    batches = [inflating_to(codec, size_bytes, one) for one in (size_bytes, MIB // 4)]
    with RawClient(broker) as client:
        before = [log_end(client, topic) for topic in topics_of(codec)]
        rise = rise_of(
            broker, codec, batches * (BATCHES // 4), peak_of_good, ErrorCode.MESSAGE_TOO_LARGE
        )
        assert rise <= RISE_BYTES_MAX
        assert [log_end(client, topic) for topic in topics_of(codec)] == before


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_inflate_to_nearly_what_may_be_cost_little_memory(
    broker: BrokerProcess, peak_of_good: int, codec: Codec
) -> None:
    batches = [inflating_to(codec, 31 * MIB, one) for one in (31 * MIB, MIB // 4)]
    rise = rise_of(broker, codec, batches * 5, peak_of_good, ErrorCode.NONE)
    assert rise <= RISE_BYTES_MAX
