"""Records of the metadata log, and the versions in which they are written.

`kafka_protocol.files.metadata_value` has the byte format. Kafka writes a record in the version that
belongs to the finalised metadata.version, and some in the lowest version that has the fields in
use.
"""

from typing import Any, Final, NamedTuple

from kafka_protocol.errors import MalformedMessageError, TidemarkError
from kafka_protocol.files import metadata_value
from kafka_protocol.wire.codec import message

# Levels of metadata.version from which a record has a higher version.
_CONTROLLED_SHUTDOWN_LEVEL: Final = 8  # 3.4-IV0
TRANSACTION_LEVEL: Final = 13  # 3.6-IV1: Begin- and EndTransactionRecord
CONTROLLER_REGISTRATION_LEVEL: Final = 15  # 3.7-IV0
DIRECTORIES_LEVEL: Final = 17  # 3.7-IV2: brokers register their log directories
ELR_LEVEL: Final = 23  # 4.0-IV1
_CORDONED_LEVEL: Final = 30  # 4.3-IV0

RECORD_WORK: Final = 20
"""Units of work (`runtime.work`) to make, encode, read back or replay a record, at most."""


class UnknownMetadataRecordError(TidemarkError):
    """The metadata log has a record that this version cannot read.

    Fatal: without the record, clients would see a cluster that does not exist. The log was written
    by a newer version, or is damaged.
    """


class MetadataRecord(NamedTuple):
    """One record: schema name, version, and the struct."""

    name: str
    version: int
    value: Any  # the class is generated from the schema named by `name`


def make(name: str, version: int = 0, /, **fields: Any) -> MetadataRecord:
    """Build a record of schema `name`; other fields have their defaults."""
    return MetadataRecord(name, version, message(name).cls(**fields))


def encode_record(record: MetadataRecord) -> bytes:
    """Encode a record as the value of a log record."""
    return metadata_value.encode(record.name, record.version, record.value)


def decode_record(value: bytes | bytearray | memoryview) -> MetadataRecord:
    """Decode the value of a log record; every byte must be used.

    Raises:
        UnknownMetadataRecordError: The bytes do not decode.
    """
    try:
        return MetadataRecord(*metadata_value.decode(metadata_value.CLUSTER_METADATA, value))
    except MalformedMessageError as error:
        raise UnknownMetadataRecordError(
            f"cannot read a record of the metadata log ({error}); was it written by a newer "
            "version?"
        ) from error


def partition_record_version(metadata_version: int) -> int:
    """Version of PartitionRecord and PartitionChangeRecord at a level of metadata.version."""
    if metadata_version >= ELR_LEVEL:
        return 2
    return 1 if metadata_version >= DIRECTORIES_LEVEL else 0


def register_broker_version(metadata_version: int) -> int:
    """Version of RegisterBrokerRecord at a level of metadata.version."""
    if metadata_version >= _CORDONED_LEVEL:
        return 4
    if metadata_version >= DIRECTORIES_LEVEL:
        return 3
    return 2 if metadata_version >= _CONTROLLED_SHUTDOWN_LEVEL else 1
