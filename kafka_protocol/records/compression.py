"""The five codecs of record batches: in pieces under a cap, and as a whole.

Most batches of producers pass a broker without decompression; this module serves the other cases.
Untrusted data of a client is read in pieces (`inflated`, `deflated`). `decompress` and `compress`
are for data that is known to fit in memory.
"""

import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from struct import Struct, error
from typing import Any

import cramjam
import zstandard

from kafka_protocol.errors import InflatedTooLargeError, InvalidRecordError
from kafka_protocol.records.batch import XERIAL_HEADER, XERIAL_MAGIC, Buffer, Codec

_XERIAL_BLOCK = 32 * 1024
_LZ4_BLOCKS = 1 << 20
"""A multiple of lz4's block size, so that a flush behind it does not change the output."""

MAX_INFLATED_BYTES = 104_857_600
"""Default cap: the largest request, so a client could send as much uncompressed."""

PIECE_BYTES = 256 * 1024
"""Approximate minimum size of a piece, except for the last one."""


def deflated(
    codec: int, pieces: Iterable[Buffer], *, level: int | None, size_bytes: int | None
) -> Iterator[bytes]:
    """Deflate records; the borders of the pieces do not change the result.

    Args:
        codec: Which; NONE gives the pieces.
        pieces: Encoded records.
        level: Of gzip, lz4 or zstd; None is the codec's default. Snappy has none.
        size_bytes: Of all pieces together, None if unknown. By it zstd bounds its memory, which
            otherwise is hundreds of megabytes at high levels.

    Raises:
        UnsupportedCodecError: No such codec.
    """
    match Codec.of(codec):
        case Codec.NONE:
            return map(bytes, pieces)
        case Codec.GZIP:
            return _in_steps(zlib.compressobj(-1 if level is None else level, 8, 31), pieces)
        case Codec.SNAPPY:
            return _deflated_snappy(pieces)
        case Codec.LZ4:
            return _deflated_lz4(pieces, 1 if level is None else level)
        case Codec.ZSTD:
            made = zstandard.ZstdCompressor(level=3 if level is None else level)
            size = -1 if size_bytes is None else size_bytes
            return _in_steps(made.compressobj(size=size), pieces)


def _in_steps(packer: Any, pieces: Iterable[Buffer]) -> Iterator[bytes]:
    """Any: the objects of zlib and zstandard have these methods in common, and no type."""
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def _deflated_lz4(pieces: Iterable[Buffer], level: int) -> Iterator[bytes]:
    # Any: cramjam's stubs know neither the keywords nor finish().
    frame: Any = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    for piece in _of_size(pieces, _LZ4_BLOCKS):
        frame.compress(piece)
        if len(piece) == _LZ4_BLOCKS:
            yield bytes(frame.flush())
    yield bytes(frame.finish())


def _deflated_snappy(pieces: Iterable[Buffer]) -> Iterator[bytes]:
    yield XERIAL_HEADER
    for piece in _of_size(pieces, _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(piece))
        yield _CHUNK.pack(len(block)) + block


def _of_size(pieces: Iterable[Buffer], size_bytes: int) -> Iterator[bytes]:
    """The same bytes in pieces of one size, but for the last."""
    rest = b""
    for piece in pieces:
        view = memoryview(rest + piece if rest else piece)
        end = len(view) - len(view) % size_bytes
        for start in range(0, end, size_bytes):
            yield bytes(view[start : start + size_bytes])
        rest = bytes(view[end:])
    if rest:
        yield rest


def inflated(codec: int, data: Buffer, *, max_bytes: int = MAX_INFLATED_BYTES) -> Iterator[bytes]:
    """Inflate the records of one batch.

    The memory in use does not depend on the inflated size. It is one piece and the state of the
    codec (a window of zstd, one block of snappy or lz4). No length from a client is trusted, and a
    claimed length alone allocates nothing.

    The framings are gzip (RFC 1952), snappy in xerial blocks, lz4 frames with independent blocks
    only, and zstd frames. One bare snappy block is read as well, because librdkafka sends it.

    Args:
        codec: Of the batch's attributes.
        data: Everything after the batch header.
        max_bytes: Largest size of the result (inclusive).

    Yields:
        Pieces, none of them empty. Without a codec it is one, however large.

    Raises:
        UnsupportedCodecError: No such codec.
        InflatedTooLargeError: The result exceeds `max_bytes`.
        InvalidRecordError: Cut or damaged data, or a framing that Kafka's readers refuse.
    """
    view = memoryview(data)
    match Codec.of(codec):
        case Codec.NONE:
            return iter((bytes(view),) if view else ())
        case Codec.GZIP:
            return _pieces(_gzip(view), max_bytes)
        case Codec.SNAPPY:
            return _pieces(_snappy(view, max_bytes), max_bytes)
        case Codec.LZ4:
            return _pieces(_lz4(view), max_bytes)
        case Codec.ZSTD:
            return _pieces(_zstd(view, max_bytes), max_bytes)


def _pieces(parts: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    """Parts of any size as pieces, so long as all together are not too large."""
    waiting: list[bytes] = []
    size, left = 0, max_bytes
    for part in parts:
        size += len(part)
        left -= len(part)
        if left < 0:
            raise InflatedTooLargeError(max_bytes)
        waiting.append(part)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


_GZIP_MAX_MEMBERS = 1000
"""Kafka's clients write a single one."""
_GZIP_SLICE = 16 * 1024
"""Size of one input: zlib copies the unused rest of its input at each call."""


def _gzip(data: memoryview) -> Iterator[bytes]:
    """Inflate all members; bytes after them that are no member are ignored, as in Java."""
    members, member, is_fed, has_given = 1, zlib.decompressobj(31), False, False
    for start in range(0, len(data), _GZIP_SLICE):
        rest: Buffer = data[start : start + _GZIP_SLICE]
        part = b""
        while rest or len(part) == PIECE_BYTES:
            try:
                part = member.decompress(rest, PIECE_BYTES)
            except zlib.error as cause:
                if members > 1 and not has_given:
                    return
                raise InvalidRecordError(f"gzip: {cause}") from cause
            yield part
            is_fed, has_given = True, has_given or bool(part)
            rest = member.unconsumed_tail
            if member.eof:
                rest, part = member.unused_data, b""
                members, member, is_fed, has_given = (
                    members + 1,
                    zlib.decompressobj(31),
                    False,
                    False,
                )
                if members > _GZIP_MAX_MEMBERS:
                    raise InvalidRecordError(f"gzip: more than {_GZIP_MAX_MEMBERS} members")
    if is_fed or members == 1:
        raise InvalidRecordError("gzip: the data is cut")


_SNAPPY_MAX_RATIO = 64
"""One copy of at most 64 bytes takes two bytes at least: a block cannot inflate to more."""
_CHUNK = Struct(">i")


def _snappy(data: memoryview, max_bytes: int) -> Iterator[bytes]:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield from _snappy_block(data, max_bytes)
        return
    position = len(XERIAL_HEADER)
    while position < len(data):
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:  # one more stream
            position += len(XERIAL_HEADER)
            continue
        try:
            (size,) = _CHUNK.unpack_from(data, position)
        except error as cause:
            raise InvalidRecordError("snappy: the data is cut") from cause
        position += _CHUNK.size
        if not 0 <= size <= len(data) - position:
            raise InvalidRecordError(f"snappy: a block of {size} bytes is not there")
        yield from _snappy_block(data[position : position + size], max_bytes)
        position += size


def _snappy_block(block: memoryview, max_bytes: int) -> Iterator[bytes]:
    try:
        claim = int(cramjam.snappy.decompress_raw_len(block))
        if claim > len(block) * _SNAPPY_MAX_RATIO:
            raise InvalidRecordError(f"snappy: {len(block)} bytes claim to hold {claim}")
        if claim > max_bytes:
            raise InflatedTooLargeError(max_bytes)
        whole = memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as cause:
        raise InvalidRecordError(f"snappy: {cause}") from cause
    for start in range(0, len(whole), PIECE_BYTES):
        yield bytes(whole[start : start + PIECE_BYTES])


_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_SIZE = Struct("<I")
_LZ4_HEADER_SIZE = 7
_LZ4_CHECKED_BLOCKS, _LZ4_CONTENT_SIZE, _LZ4_CHECKED_CONTENT = 16, 8, 4
_LZ4_BLOCK_BYTES = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}
_LZ4_PLAIN = bytes.fromhex(
    "60 40 82 60 50 fb 60 60 51 60 70 73 70 40 ad 70 50 84 70 60 33 70 70 72"
)
_LZ4_HEADERS = {_LZ4_PLAIN[i : i + 2]: _LZ4_PLAIN[i : i + 3] for i in range(0, 24, 3)}
"""Flags and block size, with their checksum, of frames whose only option is checksums of blocks.
The library gets each block alone, as such a frame."""


def _lz4(data: memoryview) -> Iterator[bytes]:
    """Inflate the first frame, without a check of its content size and checksum, as in Java."""
    if len(data) < _LZ4_HEADER_SIZE or data[:4] != _LZ4_MAGIC:
        raise InvalidRecordError("lz4: no frame")
    flags, size_code = data[4], data[5]
    block_bytes = _LZ4_BLOCK_BYTES.get(size_code, 0)
    if flags >> 5 != 0b011 or flags & 3 or not block_bytes:
        raise InvalidRecordError("lz4: Kafka's readers take only version 1, independent blocks")
    plain = _LZ4_HEADERS[bytes((flags & 0x70, size_code))]
    optional = flags & (_LZ4_CONTENT_SIZE | _LZ4_CHECKED_CONTENT)
    if not optional and data[6] != plain[2]:
        raise InvalidRecordError("lz4: the checksum of the frame's header is wrong")
    position = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    trailer = 4 if flags & _LZ4_CHECKED_BLOCKS else 0
    out = memoryview(bytearray(block_bytes))
    while position + 4 <= len(data):
        (size,) = _LZ4_SIZE.unpack_from(data, position)
        if size == 0:
            return
        end = position + 4 + (size & 0x7FFFFFFF) + trailer
        if size & 0x7FFFFFFF > block_bytes:
            raise InvalidRecordError(f"lz4: a block of more than {block_bytes} bytes")
        if end > len(data):
            break
        frame = b"".join((_LZ4_MAGIC, plain, data[position:end], bytes(4)))
        try:
            length = cramjam.lz4.decompress_into(frame, out)
        except cramjam.DecompressionError as cause:
            raise InvalidRecordError(f"lz4: {cause}") from cause
        yield bytes(out[:length])
        position = end
    raise InvalidRecordError("lz4: the data is cut")


_ZSTD_SLICE = 128
"""A block of zstd takes 4 bytes at least, and holds at most 128 KiB: no slice inflates to more than
4 MiB."""


def _zstd(data: memoryview, max_bytes: int) -> Iterator[bytes]:
    decompressor, frame = zstandard.ZstdDecompressor(), None
    try:
        claim = zstandard.get_frame_parameters(data).content_size
        if claim != zstandard.CONTENTSIZE_UNKNOWN and claim > max_bytes:
            raise InflatedTooLargeError(max_bytes)
        for start in range(0, len(data), _ZSTD_SLICE):
            rest: Buffer = data[start : start + _ZSTD_SLICE]
            while rest:
                frame = frame or decompressor.decompressobj()
                yield frame.decompress(rest)
                rest = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    except zstandard.ZstdError as cause:
        raise InvalidRecordError(f"zstd: {cause}") from cause
    if frame is not None:
        raise InvalidRecordError("zstd: the data is cut")


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_INFLATED_BYTES) -> bytes:
    """Inflate the records of one batch as a whole; see `inflated`."""
    pieces = inflated(codec, data, max_bytes=max_bytes)
    first, second = next(pieces, b""), next(pieces, b"")
    if not second:
        return first
    whole = BytesIO()  # gives its bytes without a copy
    whole.write(first)
    whole.write(second)
    whole.writelines(pieces)
    return whole.getvalue()


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """Deflate records as a whole; see `deflated`."""
    return b"".join(deflated(codec, (data,), level=level, size_bytes=len(data)))
