"""Every pure decoder: how it is called, what may come out of it, and sound bytes to begin with."""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from broker.coordinator.group.records import read_group_value, read_offset_value
from kafka_protocol.errors import CorruptFileError, KafkaError, MalformedMessageError
from kafka_protocol.files import (
    checkpoint_text,
    epoch_checkpoint,
    meta_properties,
    metadata_value,
    offset_checkpoint,
    offset_index,
    producer_snapshot,
    sealed,
    segment_names,
    time_index,
    txn_index,
)
from kafka_protocol.records.batch import iter_batches, read_header
from kafka_protocol.records.control import decode_control
from kafka_protocol.records.records import Record, build_batch, iter_records
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.framing import read_request_header
from metadata_topic.image.records import UnknownMetadataRecordError
from metadata_topic.quorum.batches import CorruptBatchError, read_batches
from metadata_topic.quorum.flushed_end_file import parse_flushed_end
from metadata_topic.quorum.quorum_state_file import QuorumStateError, parse_quorum_state
from metadata_topic.quorum.snapshots import CorruptSnapshotError, read_snapshot
from rlmm import records as remote_records
from rsm_plugins.layout.claim_object import parse_claim
from rsm_plugins.layout.objects import (
    DamagedObjectError,
    parse_key,
    parse_manifest,
    read_indexes_header,
)
from tests.support.brokers.process import ROOT

GOLDEN = ROOT / "tests" / "golden"
INFLATED_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder.

    Attributes:
        read: decodes, and walks all that it hands out.
        errors: what it declares.
        samples: sound bytes, to be damaged.
        inflates: it may make so many bytes out of few.
    """

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()
    samples: Callable[[], list[bytes]] = field(default=list)
    inflates: int = 0


def walked(read: Callable[[bytes], Iterable[Any]]) -> Callable[[bytes], object]:
    """Reads to the end of what is handed out one by one."""
    return lambda data: [*read(data)]


@cache
def golden(pattern: str) -> tuple[bytes, ...]:
    """Files of Apache Kafka, the shorter ones."""
    files = sorted(path for path in GOLDEN.rglob(pattern) if path.is_file())
    found = [path.read_bytes() for path in files if path.stat().st_size < 20_000]
    assert found, pattern
    return tuple(found[:20])


def of_files(*patterns: str) -> Callable[[], list[bytes]]:
    """Samples from golden files."""
    return lambda: [*chain.from_iterable(map(golden, patterns))]


def batches() -> list[bytes]:
    """Of each codec."""
    record = Record(0, 1_700_000_000_000, b"key", b"value" * 20, [("h", b"x"), ("n", None)])
    made = [build_batch([record._replace(offset=i) for i in range(4)], codec=c) for c in range(5)]
    return [bytes(one) for one in made] + [b"".join(map(bytes, made))]


def records_of_batches(data: bytes) -> object:
    """As every reader does: batches by their lengths, then the records of each."""
    found: list[Any] = []
    for position, _ in iter_batches(data):
        found += iter_records(data, position, max_inflated_bytes=INFLATED_MAX)
    return found


def index_by(module: Any) -> Callable[[bytes], object]:
    """All that is asked of an index."""
    return lambda data: (
        [*module.iter_entries(data, 10)],
        [module.lookup(data, 10, target) for target in (-1, 10, 2**62)],
    )


def aborted(data: bytes) -> object:
    """All that is asked of a transaction index."""
    return [*txn_index.entries_from(data, 5)], txn_index.overlapping(
        txn_index.iter_entries(data), 0, 2**62
    )


def control(data: bytes) -> object:
    """The first bytes are the key's."""
    return decode_control(Record(0, 0, data[:4], data[4:], []))


def values_of(pattern: str) -> Callable[[], list[bytes]]:
    """Record values of golden logs."""

    def found() -> list[bytes]:
        values = []
        for data in golden(pattern):
            for position, header in iter_batches(data):
                if not header.is_control:
                    values += [record.value or b"" for record in iter_records(data, position)]
        return values[:100]

    return found


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """A decoder of names."""
    return lambda data: read(data.decode("latin-1"))


_READS_RECORDS = (KafkaError, MalformedMessageError)
_METADATA = (CorruptBatchError, UnknownMetadataRecordError, *_READS_RECORDS)
_REQUEST = struct.pack(">hhih", 3, 12, 7, 4) + b"fuzz\0\1\1\0\0"
_NAMES = [b"00000000000000000010.log", b"orders-3", b"a-0.0123456789abcdef0123456789abcdef-delete"]

DECODERS: dict[str, Decoder] = {
    "request header": Decoder(
        read_request_header, (MalformedMessageError,), lambda: [_REQUEST, _REQUEST[:14]]
    ),
    "batch header": Decoder(read_header, (struct.error,), batches),
    "batches": Decoder(walked(iter_batches), (), batches),
    "records": Decoder(records_of_batches, (KafkaError,), batches, INFLATED_MAX),
    "control record": Decoder(
        control, _READS_RECORDS, lambda: [struct.pack(">hh", 0, k) + b"\0" * 8 for k in range(7)]
    ),
    "checkpoint": Decoder(
        lambda data: checkpoint_text.parse_lines(data, 2),
        (CorruptFileError,),
        of_files("leader-epoch-checkpoint"),
    ),
    "epoch checkpoint": Decoder(
        epoch_checkpoint.parse, (CorruptFileError,), of_files("leader-epoch-checkpoint")
    ),
    "offset checkpoint": Decoder(
        offset_checkpoint.parse, (CorruptFileError,), of_files("*-offset-checkpoint")
    ),
    "meta.properties": Decoder(
        meta_properties.parse_meta_properties, (CorruptFileError,), of_files("meta.properties")
    ),
    "partition.metadata": Decoder(
        meta_properties.parse_partition_metadata,
        (CorruptFileError,),
        of_files("partition.metadata"),
    ),
    "offset index": Decoder(index_by(offset_index), (), of_files("*.index")),
    "offset index's order": Decoder(
        lambda data: offset_index.is_sound(data, 1 << 30), (), of_files("*.index")
    ),
    "time index": Decoder(index_by(time_index), (), of_files("*.timeindex")),
    "time index's order": Decoder(time_index.is_sound, (), of_files("*.timeindex")),
    "transaction index": Decoder(
        aborted,
        (CorruptFileError,),
        lambda: [txn_index.pack_entry(txn_index.AbortedTransaction(7, 3, 9, 10)) * 3],
    ),
    "producer snapshot": Decoder(
        producer_snapshot.parse, (CorruptFileError,), of_files("*.snapshot")
    ),
    "sealed lines": Decoder(
        lambda data: sealed.unseal(data, head="fuzz 1"),
        (CorruptFileError,),
        lambda: [sealed.seal(["fuzz 1", "a", "b"])],
    ),
    "name of a segment's file": Decoder(text(segment_names.parse_segment_file), (), lambda: _NAMES),
    "name of a directory": Decoder(text(segment_names.parse_partition_dir), (), lambda: _NAMES),
    "name of a renamed directory": Decoder(
        text(segment_names.parse_renamed_dir),
        (),
        lambda: [segment_names.renamed_dir(TopicPartition("a", 0), bytes(16), "delete").encode()],
    ),
    "metadata record": Decoder(
        lambda data: metadata_value.decode(metadata_value.CLUSTER_METADATA, data),
        (MalformedMessageError,),
        values_of("0*.log"),
    ),
    "metadata batches": Decoder(walked(read_batches), _METADATA, of_files("0*.log")),
    "metadata snapshot": Decoder(
        read_snapshot, (CorruptSnapshotError, *_READS_RECORDS), of_files("0*.checkpoint")
    ),
    "quorum-state": Decoder(parse_quorum_state, (QuorumStateError,), of_files("quorum-state")),
    "flushed end": Decoder(parse_flushed_end, (), list),
    "committed offset": Decoder(read_offset_value, (MalformedMessageError,), values_of("0*.log")),
    "group": Decoder(read_group_value, (MalformedMessageError,), values_of("0*.log")),
    "remote metadata": Decoder(
        remote_records.decode, (remote_records.UnreadableRecordError,), values_of("0*.log")
    ),
    "remote claim": Decoder(
        lambda data: parse_claim(data, "c", 1),
        (DamagedObjectError,),
        lambda: [b'{"number": 3, "version": 1, "clusterId": "c", "nodeId": 1, "crc32c": 5}'],
    ),
    "remote manifest": Decoder(
        parse_manifest,
        (DamagedObjectError,),
        lambda: [b'{"version": 1, "topicId": "AAAAAAAAAAAAAAAAAAAAAA", "partition": 1}'],
    ),
    "remote indexes": Decoder(read_indexes_header, (DamagedObjectError,), list),
    "remote key": Decoder(text(parse_key), (), list),
}
