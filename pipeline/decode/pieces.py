"""The records of batches as bytes: a group is cut into pieces of bounded inflated size.

A piece of uncompressed batches stays where it is; anything else is inflated next to each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafka_protocol.records.batch import HEADER_SIZE, Buffer
from kafka_protocol.records.compression import decompress
from kafka_protocol.records.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
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
    bodies: list[Buffer] = []
    size = first = 0
    plain = True
    facts = zip(frames.position.tolist(), frames.end.tolist(), frames.codec.tolist(), strict=True)
    for index, (position, end, codec) in enumerate(facts):
        body: Buffer = view[position + HEADER_SIZE : end]
        if codec:
            body = _inflated(codec, body, position, int(frames.base_offset[index]))
        if bodies and size + len(body) > piece_bytes:
            yield _piece(view, frames.of(slice(first, index)), bodies, plain=plain)
            bodies, size, first, plain = [], 0, index, True
        bodies.append(body)
        size += len(body)
        plain = plain and not codec
    if bodies:
        yield _piece(view, frames.of(slice(first, None)), bodies, plain=plain)


def _inflated(codec: int, body: Buffer, position: int, base_offset: int) -> bytes:
    try:
        return decompress(codec, body)
    except (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError) as cause:
        raise DamagedBatchError(position, base_offset, str(cause)) from cause


def _piece(view: memoryview, frames: Frames, bodies: list[Buffer], *, plain: bool) -> Piece:
    if plain:  # the bytes stay where they are; positions are small for Arrow's sake
        first = int(frames.position[0])
        start = frames.position - first + HEADER_SIZE
        return Piece(frames, view[first : int(frames.end[-1])], start, frames.end - first)
    ends = np.cumsum(np.array([len(body) for body in bodies], np.int64))
    starts = np.concatenate(([0], ends[:-1]))
    data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
    return Piece(frames, data, starts, ends)
