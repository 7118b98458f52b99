"""Which batch of many is hostile, and why, in the words of the exact decoder."""

from collections import deque

import pyarrow as pa

from kafka_protocol.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafka_protocol.records.batch import Buffer
from kafka_protocol.records.records import iter_records
from pipeline.decode.asked import Keep, Origin
from pipeline.decode.frames import DamagedBatchError
from pipeline.decode.pieces import Piece
from pipeline.decode.rows import read_rows
from pipeline.decode.varints import WrongRecordsError


def damage_in(
    data: Buffer, piece: Piece, origin: Origin, keep: Keep, schema: pa.Schema
) -> DamagedBatchError:
    """Decode the batches of a piece one by one until one is refused.

    Args:
        data: the group, of which the piece is a part.
        piece: was refused as a whole.
        origin: as given to `read_rows` then.
        keep: likewise.
        schema: likewise.

    Raises:
        AssertionError: each batch alone is fine, which cannot be.
    """
    for index in range(len(piece.frames)):
        one = slice(index, index + 1)
        alone = Piece(piece.frames.of(one), piece.data, piece.start[one], piece.end[one])
        try:
            deque(read_rows(alone, origin, keep, schema), maxlen=0)
        except WrongRecordsError as wrong:
            position = int(alone.frames.position[0])
            reason = _exact_reason(data, position) or str(wrong)
            return DamagedBatchError(position, int(alone.frames.base_offset[0]), reason)
    raise AssertionError("a piece was refused, and each of its batches taken")


def _exact_reason(data: Buffer, position: int) -> str | None:
    """What the record-by-record decoder refuses; None where only this package is stricter."""
    try:
        deque(iter_records(data, position), maxlen=0)
    except (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError) as error:
        # header names need not be UTF-8 here
        return None if isinstance(error.__cause__, UnicodeDecodeError) else str(error)
    return None
