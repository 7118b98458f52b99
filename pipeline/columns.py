"""The columns of a row and their exact Arrow types: those of Spark's Kafka source.

Spark compares types exactly: the inner field of `headers` is called `element`, timestamps are
microseconds in UTC, nothing is dictionary-encoded.
"""

from collections.abc import Sequence

import pyarrow as pa

from pipeline.errors import OptionError

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""All columns in order. `timestampType` is 0 for CreateTime, 1 for LogAppendTime; `headers` is null
for a record without any."""

DEFAULT_COLUMNS: tuple[str, ...] = tuple(name for name in TYPES if name != "headers")


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns, in the order given.

    Raises:
        OptionError: there is no such column, or one is named twice.
    """
    for name in columns:
        if name not in TYPES:
            raise OptionError(f"there is no column {name[:100]!r}: allowed are {', '.join(TYPES)}")
    if len(set(columns)) != len(columns):
        raise OptionError(f"a column is named twice: {', '.join(columns)}")
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])
