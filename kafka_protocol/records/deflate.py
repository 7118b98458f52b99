"""Deflates records piece by piece, in framings that every Kafka client reads."""

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any

import cramjam
import zstandard

from kafka_protocol.records.batch import Buffer
from kafka_protocol.records.codec import XERIAL_HEADER, Codec

_XERIAL_BLOCK = 32 * 1024
_CHUNK = Struct(">i")
_LZ4_BLOCKS = 1 << 20
"""A whole number of lz4's blocks: what is flushed behind one is as if it were not."""


def deflated(
    codec: int, pieces: Iterable[Buffer], *, level: int | None, size_bytes: int | None
) -> Iterator[bytes]:
    """Deflate records; how they are cut into pieces changes nothing.

    Args:
        codec: which; NONE gives the pieces.
        pieces: encoded records.
        level: of gzip, lz4 or zstd; None is the codec's default. Snappy has none.
        size_bytes: of all pieces together, None where it is not known. From it zstd knows how much
            memory is of use to it: at high levels it else takes hundreds of megabytes.

    Raises:
        UnsupportedCodecError: no such codec.
    """
    match Codec.of(codec):
        case Codec.NONE:
            return map(bytes, pieces)
        case Codec.GZIP:
            return _in_steps(zlib.compressobj(-1 if level is None else level, 8, 31), pieces)
        case Codec.SNAPPY:
            return _snappy(pieces)
        case Codec.LZ4:
            return _lz4(pieces, 1 if level is None else level)
        case Codec.ZSTD:
            made = zstandard.ZstdCompressor(level=3 if level is None else level)
            size = -1 if size_bytes is None else size_bytes
            return _in_steps(made.compressobj(size=size), pieces)


def _in_steps(packer: Any, pieces: Iterable[Buffer]) -> Iterator[bytes]:
    """Any: the objects of zlib and zstandard have these methods in common, and no type."""
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def _lz4(pieces: Iterable[Buffer], level: int) -> Iterator[bytes]:
    # Any: cramjam's stubs know neither the keywords nor finish().
    frame: Any = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    for piece in _of_size(pieces, _LZ4_BLOCKS):
        frame.compress(piece)
        if len(piece) == _LZ4_BLOCKS:
            yield bytes(frame.flush())
    yield bytes(frame.finish())


def _snappy(pieces: Iterable[Buffer]) -> Iterator[bytes]:
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
