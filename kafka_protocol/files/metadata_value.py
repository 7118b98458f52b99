"""Values of the records in `__cluster_metadata` and `__remote_log_metadata`.

An envelope of three varints (frame version 1, api key, version) and a flexible struct that fills
the rest. The two topics number their records separately.
"""

from functools import cache
from typing import Any, NamedTuple

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.codec import family_records, message
from kafka_protocol.wire.primitives import Buffer, encode_uvarint, read_uvarint

CLUSTER_METADATA = "cluster_metadata"
REMOTE_LOG_METADATA = "remote_log_metadata"

_FRAME_VERSION = 1


class MetadataValue(NamedTuple):
    """A decoded record value; `record` is an instance of `message(name).cls`."""

    name: str
    version: int
    record: Any


def encode(name: str, version: int, record: Any) -> bytes:
    """Write the value of a record.

    Args:
        name: Of the record's schema, such as `TopicRecord`.
        version: To write it in.
        record: Instance of `message(name).cls`.
    """
    schema = message(name)
    assert schema.api_key is not None
    envelope = (_FRAME_VERSION, schema.api_key, version)
    return b"".join(map(encode_uvarint, envelope)) + schema.encode(record, version)


def decode(family: str, value: Buffer) -> MetadataValue:
    """Read the value of a record.

    Args:
        family: `CLUSTER_METADATA` or `REMOTE_LOG_METADATA`.
        value: All bytes of the record's value.

    Raises:
        MalformedMessageError: Another frame version, an unknown record or version, bytes that are
            cut or left over.
    """
    try:
        frame, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError as error:
        raise MalformedMessageError("metadata record: the envelope is cut") from error
    if frame != _FRAME_VERSION:
        raise MalformedMessageError(f"metadata record: frame version {frame}")
    name = _names(family).get(api_key)
    if name is None:
        raise MalformedMessageError(f"metadata record: unknown api key {api_key}")
    schema = message(name)
    record, end = schema.decode(value, version, position)
    if end != len(value):
        raise MalformedMessageError(f"{schema.name}: {len(value) - end} bytes left over")
    return MetadataValue(schema.name, version, record)


@cache
def _names(family: str) -> dict[int, str]:
    return family_records(family)
