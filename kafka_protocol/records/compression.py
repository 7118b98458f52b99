"""The five codecs of record batches, in the framings that Kafka's own readers take.

Producers' batches pass a broker unopened; this is for the places that must look inside. Output is
capped while it grows: no length a client wrote is trusted, and a claim alone allocates nothing.

Framings: gzip as RFC 1952; snappy as xerial blocks (one bare block is read, too: librdkafka sends
it); lz4 frames with independent blocks only; zstd frames.
"""

import zlib
from enum import IntEnum
from struct import Struct, error
from typing import Any

import cramjam

from kafka_protocol.records.batch import Buffer
from kafka_protocol.records.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)

MAX_INFLATED_BYTES = 104_857_600
"""Default cap: what a client could also have sent in one request uncompressed."""


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> "Codec":
        """The codec of this number.

        Raises:
            UnsupportedCodecError: there is none.
        """
        try:
            return cls(number)
        except ValueError:
            raise UnsupportedCodecError(number) from None

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec that configurations call `name` (`none`, also `uncompressed`).

        Raises:
            ValueError: there is none.
        """
        if name == "uncompressed":
            return cls.NONE
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"unknown compression type {name!r}") from None


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_INFLATED_BYTES) -> bytes:
    """Inflate the records of one batch.

    Args:
        codec: of the batch's attributes.
        data: everything after the batch header.
        max_bytes: most that may come out (inclusive).

    Raises:
        UnsupportedCodecError: no such codec.
        InflatedTooLargeError: more than `max_bytes` would come out.
        InvalidRecordError: cut or damaged data, or a framing that Kafka's readers refuse.
    """
    match Codec.of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(data, max_bytes)
        case Codec.SNAPPY:
            return _unsnap(bytes(data), max_bytes)
        case Codec.LZ4:
            return _unlz4(bytes(data), max_bytes)
        case Codec.ZSTD:
            return _unzstd(bytes(data), max_bytes)


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """Deflate records, in a framing that every Kafka client reads.

    Args:
        codec: which; NONE returns the data.
        data: encoded records.
        level: of gzip, lz4 or zstd; None is the codec's default. Snappy has none.

    Raises:
        UnsupportedCodecError: no such codec.
    """
    match Codec.of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            return _snap(data)
        case Codec.LZ4:
            # Any: cramjam's stubs know neither the keywords nor finish().
            frame: Any = cramjam.lz4.Compressor(
                level=1 if level is None else level, content_checksum=False, block_linked=False
            )
            frame.compress(data)
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


_GZIP_MAX_MEMBERS = 1000
"""Each member costs a copy of what follows it; Kafka's clients write a single one."""


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    """Inflate all members; what follows the last one and is no member is left, as Java does."""
    out = bytearray()
    rest: Buffer = data
    for _ in range(_GZIP_MAX_MEMBERS):
        member = zlib.decompressobj(31)
        try:
            # One byte more than allowed shows that it is too much.
            out += member.decompress(rest, max_bytes + 1 - len(out))
        except zlib.error as cause:
            if out:
                return bytes(out)
            raise InvalidRecordError(f"gzip: {cause}") from cause
        if len(out) > max_bytes:
            raise InflatedTooLargeError(max_bytes)
        if not member.eof:
            raise InvalidRecordError("gzip: the data is cut")
        rest = member.unused_data
        if not rest:
            return bytes(out)
    raise InvalidRecordError(f"gzip: more than {_GZIP_MAX_MEMBERS} members")


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK = 32 * 1024
_CHUNK = Struct(">i")
_SNAPPY_MAX_RATIO = 64
"""One copy of at most 64 bytes takes two bytes at least: a block cannot inflate to more."""


def _snap(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK])))
        out += _CHUNK.pack(len(block))
        out += block
    return bytes(out)


def _unsnap(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap_block(data, max_bytes, max_bytes)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if data.startswith(_XERIAL_MAGIC, position):  # a stream behind the stream
            position += len(_XERIAL_HEADER)
            continue
        try:
            (size,) = _CHUNK.unpack_from(data, position)
        except error as cause:
            raise InvalidRecordError("snappy: the data is cut") from cause
        position += _CHUNK.size
        if not 0 <= size <= len(data) - position:
            raise InvalidRecordError(f"snappy: a block of {size} bytes is not there")
        out += _unsnap_block(data[position : position + size], max_bytes - len(out), max_bytes)
        position += size
    return bytes(out)


def _unsnap_block(block: bytes, left: int, max_bytes: int) -> bytes:
    try:
        claim = int(cramjam.snappy.decompress_raw_len(block))
        if claim > len(block) * _SNAPPY_MAX_RATIO:
            raise InvalidRecordError(f"snappy: {len(block)} bytes claim to hold {claim}")
        if claim > left:
            raise InflatedTooLargeError(max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as cause:
        raise InvalidRecordError(f"snappy: {cause}") from cause


_LZ4_MAGIC = b"\x04\x22\x4d\x18"


def _unlz4(data: bytes, max_bytes: int) -> bytes:
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        raise InvalidRecordError("lz4: no frame")
    flags = data[4]
    if flags >> 6 != 1 or not flags & 0x20:
        raise InvalidRecordError("lz4: Kafka's readers take only version 1, independent blocks")
    return _inflate_into("lz4", cramjam.lz4.decompress_into, data, max_bytes)


_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    if _zstd_claim(data) > max_bytes:
        raise InflatedTooLargeError(max_bytes)
    return _inflate_into("zstd", cramjam.zstd.decompress_into, data, max_bytes)


def _zstd_claim(data: bytes) -> int:
    """Content size that the first frame's header names; 0 if it names none."""
    if not data.startswith(_ZSTD_MAGIC) or len(data) < 18:
        return 0
    descriptor = data[4]
    single_segment = bool(descriptor & 0x20)
    kind = descriptor >> 6
    size = (int(single_segment), 2, 4, 8)[kind]
    start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    claim = int.from_bytes(data[start : start + size], "little")
    return claim + 256 if kind == 1 else claim


def _inflate_into(name: str, inflate: Any, data: bytes, max_bytes: int) -> bytes:
    """Inflate into a buffer that cannot grow: first a likely size, then the cap.

    A large buffer costs only the pages that are written to.
    """
    for room in (min(max_bytes, 16 * len(data) + 65_536), max_bytes):
        out = bytearray(room)
        try:
            size = inflate(data, out)
        except cramjam.DecompressionError as cause:
            if "whole buffer" not in str(cause):
                raise InvalidRecordError(f"{name}: {cause}") from cause
            continue
        return bytes(memoryview(out)[:size])
    raise InflatedTooLargeError(max_bytes)
