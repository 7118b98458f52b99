"""Whole record batches to Arrow: the contract between the reading of bytes and everything above.

Positions are those of a batch's first byte. Must not know: stores, brokers, Spark.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from kafka_protocol.errors import InflatedTooLargeError, InvalidRecordError, UnsupportedCodecError
from kafka_protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, Buffer
from kafka_protocol.records.records import iter_records
from pipeline.columns import schema_of
from pipeline.decode.asked import Keep, Origin
from pipeline.decode.frames import DamagedBatchError, read_frames, rows_wanted
from pipeline.decode.pieces import Piece, pieces_of
from pipeline.decode.rows import read_rows
from pipeline.decode.varints import WrongRecordsError
from pipeline.errors import DamagedDataError

__all__ = ["BATCH_BYTES", "Keep", "Origin", "decode_group", "whole_batches"]

BATCH_BYTES = 8 << 20
"""About what one Arrow batch should hold, in inflated bytes of records."""

_PIECE_BYTES_MAX = 1 << 30
"""Positions in a piece are four bytes in Arrow."""


def whole_batches(data: Buffer) -> int:
    """Bytes at the front of `data` that `decode_group` can validate: all its whole batches.

    At a length that no batch has, nothing behind it can be found: then this is all of `data`, so
    that `decode_group` names the damage.
    """
    position, end = 0, len(data)
    while position + HEADER_SIZE <= end:
        length = HEADER.unpack_from(data, position)[1]
        if length < HEADER_SIZE - LOG_OVERHEAD:
            return end
        if position + length + LOG_OVERHEAD > end:
            break
        position += length + LOG_OVERHEAD
    return position


def decode_group(
    data: Buffer,
    origin: Origin,
    keep: Keep,
    columns: Sequence[str],
    *,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Decode whole batches, in the order of their offsets.

    Memory stays at a few times `batch_bytes` and the largest batch, whatever the data inflates to.

    Args:
        data: whole batches and nothing else.
        origin: where they come from.
        keep: rows that are wanted.
        columns: of `pipeline.columns`, in the order wanted.
        batch_bytes: about the inflated bytes of records behind one Arrow batch.

    Yields:
        Arrow batches of at least one row.

    Raises:
        DamagedDataError: names object, position, offset and reason; raised by the first `next` for
            what headers and checksums show, otherwise where the damage stands.
    """
    schema = schema_of(columns)
    try:
        frames = read_frames(data, keep.epochs)
        wanted = frames.of(rows_wanted(frames, keep.first, keep.last, keep.aborted))
        for piece in pieces_of(data, wanted, min(batch_bytes, _PIECE_BYTES_MAX)):
            try:
                yield from read_rows(piece, origin, keep, schema)
            except WrongRecordsError as wrong:
                raise damage_in(data, piece, origin, keep, schema) from wrong
    except DamagedBatchError as damage:
        raise DamagedDataError(_message(origin, damage)) from damage


def _message(origin: Origin, damage: DamagedBatchError) -> str:
    offset = "" if damage.base_offset is None else f" with base offset {damage.base_offset}"
    return (
        f"{origin.name}: the batch at byte {origin.position + damage.position}{offset} of "
        f"{origin.topic}-{origin.partition} is damaged: {damage.reason}; compare the bytes with "
        "a good copy, or read around these offsets"
    )


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
    """The refusal of the record-by-record decoder; None where only this package is stricter."""
    try:
        deque(iter_records(data, position), maxlen=0)
    except (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError) as error:
        # header names need not be UTF-8 here
        return None if isinstance(error.__cause__, UnicodeDecodeError) else str(error)
    return None
