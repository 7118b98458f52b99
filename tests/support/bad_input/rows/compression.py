"""Compression. Where a topic needs records opened, bombs and cut streams are refused."""

import struct
import time
import zlib
from collections.abc import Callable

from kafka_protocol.records.records import build_batch
from tests.support.bad_input.case import MB, cases
from tests.support.bad_input.rows.produce import sealed
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch
from tests.support.brokers.raw_client import log_end, produce

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def compressed(codec: int, payload: bytes, count: int = 1) -> bytes:
    """A batch whose records are `payload`, said to be compressed with `codec`."""
    data = batch(b"x")[:61] + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    return sealed(data)


def snappy_claiming_two_gib() -> bytes:
    block = b"\x80\x80\x80\x80\x08" + b"x" * 20
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + struct.pack(">i", len(block)) + block


def gzip_of_a_gib() -> bytes:
    """The same compressed 16 MiB again and again; its end is never reached."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(7) + piece * 64 + b"\x03\x00" + bytes(8)


def inflating(codec: int, size_bytes: int) -> Callable[[], bytes]:
    """One record of zeros, as a producer would send it."""
    return lambda: bytes(build_batch([(0, b"k", bytes(size_bytes), [])], codec=codec)[61:])


BOMBS: dict[str, tuple[int, Callable[[], bytes], int]] = {
    "N052 gzip": (1, gzip_of_a_gib, 10),
    "N053 zstd": (4, inflating(4, 300 << 20), 10),
    "N053 lz4": (3, inflating(3, 100 << 20), 10),
    "N054 snappy": (2, snappy_claiming_two_gib, 87),
}


@cases(BOMBS, peak_bytes=100 * MB)
def bombs(stage: Stage, bomb: tuple[int, Callable[[], bytes], int]) -> None:
    codec, payload, code = bomb
    topic = stage.topic(cleanup_policy="compact", max_message_bytes="2097152")
    assert produce(stage.client, topic, compressed(codec, payload())).error_code == code
    assert log_end(stage.client, topic) == 0


def good_payload(codec: int) -> bytes:
    now = int(time.time() * 1000)
    records = [(now, b"k%d" % i, b"v" * 200, []) for i in range(50)]
    return bytes(build_batch(records, codec=codec)[61:])


@cases(
    {
        f"N055 {name} {part}": (codec, part)
        for name, codec in CODECS.items()
        for part in (0.0, 0.3, 0.6, 0.95)
    }
)
def cut_streams(stage: Stage, cut: tuple[int, float]) -> None:
    codec, part = cut
    topic = stage.topic(cleanup_policy="compact")
    whole = good_payload(codec)
    data = compressed(codec, whole[: int(len(whole) * part)], count=50)
    assert produce(stage.client, topic, data).error_code == 87
    assert log_end(stage.client, topic) == 0
    good = compressed(codec, whole, count=50)
    assert produce(stage.client, topic, good).error_code == 0


@cases({f"N057 version {version}": version for version in (3, 5, 6)})
def zstd_too_early(stage: Stage, version: int) -> None:
    topic, data = stage.topic(), batch(b"x" * 100, codec=4)
    assert produce(stage.client, topic, data, version).error_code == 76
    assert log_end(stage.client, topic) == 0
    assert produce(stage.client, topic, data, 7).error_code == 0
