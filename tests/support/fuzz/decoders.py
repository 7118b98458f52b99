"""Every pure decoder: how it is called, what may come out of it, and sound bytes to begin with."""

import struct
from collections.abc import Callable
from typing import Any

from broker.coordinator.group.records import read_group_value, read_offset_value
from kafka_protocol.errors import CorruptFileError, MalformedMessageError
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
from kafka_protocol.records.records import Record, iter_records
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.framing import read_request_header
from metadata_topic.quorum.driver.quorum_state_file import QuorumStateError, parse_quorum_state
from metadata_topic.quorum.log.flushed_end_file import parse_flushed_end
from rlmm import records as remote_records
from rsm_plugins.layout.claim_object import parse_claim
from rsm_plugins.layout.objects import (
    DamagedObjectError,
    parse_key,
    parse_manifest,
    read_indexes_header,
)
from tests.support.fuzz.decoder import Decoder, golden, of_files
from tests.support.fuzz.walkers import READS_RECORDS, WALKERS, batches


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


_REQUEST = struct.pack(">hhih", 3, 12, 7, 4) + b"fuzz\0\1\1\0\0"
_NAMES = [b"00000000000000000010.log", b"orders-3", b"a-0.0123456789abcdef0123456789abcdef-delete"]

DECODERS: dict[str, Decoder] = {
    **WALKERS,
    "request header": Decoder(
        read_request_header, (MalformedMessageError,), lambda: [_REQUEST, _REQUEST[:14]]
    ),
    "batch header": Decoder(read_header, (struct.error,), batches),
    "control record": Decoder(
        control, READS_RECORDS, lambda: [struct.pack(">hh", 0, k) + b"\0" * 8 for k in range(7)]
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
