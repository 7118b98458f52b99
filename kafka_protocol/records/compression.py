"""The five codecs of record batches, for what fits in memory as a whole.

Producers' batches pass a broker unopened; this is for the places that must look inside. What a
client wrote and nobody has opened yet is better read in pieces: `inflate`, `deflate`.
"""

from io import BytesIO

from kafka_protocol.records.batch import Buffer
from kafka_protocol.records.codec import Codec
from kafka_protocol.records.deflate import deflated
from kafka_protocol.records.inflate import MAX_INFLATED_BYTES, inflated

__all__ = ["MAX_INFLATED_BYTES", "Codec", "compress", "decompress"]


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
