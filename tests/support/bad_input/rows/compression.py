"""Compression. Where a topic needs records opened, bombs and cut streams are refused."""

import struct
import time
import zlib
from collections.abc import Callable

from kafka_protocol.records.records import build_batch
from tests.support.bad_input.case import cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch, with_records
from tests.support.brokers.raw_client import log_end, produce

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def snappy_claiming_two_gib() -> bytes:
    block = b"\x80\x80\x80\x80\x08" + b"x" * 20
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + struct.pack(">i", len(block)) + block


def zstd_claiming_a_tebibyte() -> bytes:
    """A frame whose header claims it, with one empty block that is the last."""
    magic, descriptor = b"\x28\xb5\x2f\xfd", b"\xe0"  # single segment, size in 8 bytes
    return magic + descriptor + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"


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
    "N053 zstd claims a tebibyte": (4, zstd_claiming_a_tebibyte, 10),
    "N054 snappy": (2, snappy_claiming_two_gib, 87),
}


@cases(BOMBS)
def bombs(stage: Stage, bomb: tuple[int, Callable[[], bytes], int]) -> None:
    codec, payload, code = bomb
    topic = stage.topic(cleanup_policy="compact", max_message_bytes="2097152")
    assert produce(stage.client, topic, with_records(codec, payload())).error_code == code
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
    data = with_records(codec, whole[: int(len(whole) * part)], count=50)
    assert produce(stage.client, topic, data).error_code == 87
    assert log_end(stage.client, topic) == 0
    good = with_records(codec, whole, count=50)
    assert produce(stage.client, topic, good).error_code == 0


@cases({f"N057 version {version}": version for version in (3, 5, 6)})
def zstd_too_early(stage: Stage, version: int) -> None:
    topic, data = stage.topic(), batch(b"x" * 100, codec=4)
    assert produce(stage.client, topic, data, version).error_code == 76
    assert log_end(stage.client, topic) == 0
    assert produce(stage.client, topic, data, 7).error_code == 0
