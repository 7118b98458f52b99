"""Arrow arrays over positions in a buffer, without a Python object for any value.

A gather is Arrow's own `take`: over the buffer stands a binary array whose even elements are the
wanted byte strings and whose odd ones are the bytes between them.
"""

import re
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_protocol.records.batch import Buffer
from pipeline.columns import HEADERS
from pipeline.decode.fields import Spans
from pipeline.decode.record_headers import HeaderSpans

_CACHED_ROWS = 1 << 16
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def binary_array(data: Buffer, spans: Spans) -> pa.Array:
    """The byte strings at ascending spans, copied next to each other."""
    count = len(spans.pairs)
    null = spans.null
    if null is not None and null.all():
        return pa.nulls(count, pa.binary())
    if count == 0:
        return pa.array([], pa.binary())
    offsets = pa.py_buffer(np.ascontiguousarray(spans.pairs))
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, offsets, pa.py_buffer(data)])
    taken = every.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))
    if null is None or not null.any():
        return taken
    return pa.Array.from_buffers(pa.binary(), count, [_validity(~null), *taken.buffers()[1:]])


def headers_array(data: Buffer, headers: HeaderSpans) -> pa.Array:
    """The `headers` column; null for a record without any."""
    names = text_array(binary_array(data, Spans(headers.name, None)))
    values = binary_array(data, Spans(headers.value, headers.null))
    pair = HEADERS.value_type
    entries = pa.StructArray.from_arrays([names, values], fields=[pair.field(0), pair.field(1)])
    ends = np.zeros(len(headers.count) + 1, np.int32)
    np.cumsum(headers.count, out=ends[1:])
    return pa.Array.from_buffers(
        HEADERS,
        len(headers.count),
        [_validity(headers.count > 0), pa.py_buffer(ends)],
        children=[entries],
    )


def text_array(names: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 becomes replacement characters, as in Java's client."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        encoded = names.dictionary_encode()
        texts = [_java_text(name) for name in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)


def _java_text(name: bytes) -> str:
    # Java makes one character of what would be a surrogate, Python one of each byte
    return _SURROGATE.sub(b"\xef\xbf\xbd", name).decode(errors="replace")


def int_array(values: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Numbers without nulls, not copied, as any type of eight bytes."""
    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(plain), [None, pa.py_buffer(plain)])


def constant_array(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    """One value again and again; short ones share their memory."""
    if rows <= _CACHED_ROWS:
        return _cached(value, kind)[:rows]
    return pa.repeat(pa.scalar(value, kind), rows)


@lru_cache(maxsize=256)
def _cached(value: str | int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), _CACHED_ROWS)


def _validity(valid: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
