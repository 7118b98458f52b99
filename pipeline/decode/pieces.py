"""The records of batches as bytes: a group is cut into pieces of bounded inflated size.

A piece of uncompressed batches stays where it is; anything else is inflated next to each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafka_protocol.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafka_protocol.records.batch import HEADER_SIZE, Buffer
from kafka_protocol.records.compression import decompress
from pipeline.decode.frames import DamagedBatchError, Frames, Ints


@dataclass(frozen=True, slots=True)
class Piece:
    """Some batches and the bytes of their records.

    Attributes:
        frames: of these batches.
        data: holds the records of all.
        start, end: where in `data` the records of each batch stand.
    """

    frames: Frames
    data: Buffer
    start: Ints
    end: Ints


def pieces_of(data: Buffer, frames: Frames, piece_bytes: int) -> Iterator[Piece]:
    """Inflate batches, about `piece_bytes` at a time, and at least one batch.

    Raises:
        DamagedBatchError: records that cannot be inflated, or inflate to too much.
    """
    view = memoryview(data)
    if not frames.codec.any():
        yield from _plain_pieces(view, frames, piece_bytes)
        return
    bodies: list[Buffer] = []
    size = first = 0
    facts = zip(frames.position.tolist(), frames.end.tolist(), frames.codec.tolist(), strict=True)
    for index, (position, end, codec) in enumerate(facts):
        body: Buffer = view[position + HEADER_SIZE : end]
        if codec:
            body = _inflated(codec, body, position, int(frames.base_offset[index]))
        if bodies and size + len(body) > piece_bytes:
            yield _joined(frames.of(slice(first, index)), bodies)
            bodies, size, first = [], 0, index
        bodies.append(body)
        size += len(body)
    yield _joined(frames.of(slice(first, None)), bodies)


def _inflated(codec: int, body: Buffer, position: int, base_offset: int) -> bytes:
    try:
        return decompress(codec, body)
    except (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError) as cause:
        raise DamagedBatchError(position, base_offset, str(cause)) from cause


def _plain_pieces(view: memoryview, frames: Frames, piece_bytes: int) -> Iterator[Piece]:
    """Records where they are; positions are relative to a piece's first batch."""
    first = 0
    while first < len(frames):
        begin = int(frames.position[first])
        until = int(np.searchsorted(frames.end, begin + piece_bytes, side="right"))
        part = frames.of(slice(first, max(until, first + 1)))
        body = view[begin : int(part.end[-1])]
        yield Piece(part, body, part.position + HEADER_SIZE - begin, part.end - begin)
        first += len(part)


def _joined(frames: Frames, bodies: list[Buffer]) -> Piece:
    ends = np.cumsum(np.array([len(body) for body in bodies], np.int64))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    return Piece(frames, bodies[0] if len(bodies) == 1 else b"".join(bodies), starts, ends)
