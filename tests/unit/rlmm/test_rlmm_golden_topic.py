"""The records that Apache Kafka 4.3.1 wrote into `__remote_log_metadata`."""

import re
from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire.primitives import uuid_to_text
from rlmm import records
from rlmm.events import MetadataEvent, PartitionDeleted, SegmentAdded
from rlmm.fold import Fold
from rlmm.lifecycle import Verdict
from rlmm.store import MemoryStore
from rsm_plugins.segment import RemoteLogSegmentId, SegmentState

GOLDEN = Path(__file__).parents[2] / "golden"
PARTITIONS = ("__remote_log_metadata-1", "__remote_log_metadata-3")


def log_values(partition: str) -> list[bytes]:
    path = GOLDEN / "remote-tier/metadata-topic" / partition / "00000000000000000000.log"
    data = path.read_bytes()
    return [
        bytes(record.value)
        for position, _ in iter_batches(data)
        for record in iter_records(data, position)
        if record.value is not None
    ]


def dump_lines(partition: str) -> list[str]:
    dump = (GOLDEN / "dumps/remote-tier/metadata-topic" / f"{partition}.txt").read_text()
    return re.findall(r"payload: (.*)", dump)


def id_text(id: RemoteLogSegmentId) -> str:
    owner = id.topic_id_partition
    return (
        "RemoteLogSegmentId{topicIdPartition="
        f"{uuid_to_text(owner.topic_id)}:{owner.topic}-{owner.partition},"
        f" id={uuid_to_text(id.id)}}}"
    )


def as_kafka_prints(event: MetadataEvent) -> str:
    assert not isinstance(event, PartitionDeleted)
    if isinstance(event, SegmentAdded):
        meta = event.metadata
        epochs = ", ".join(f"{epoch}={start}" for epoch, start in meta.leader_epochs)
        return (
            f"RemoteLogSegmentMetadata{{remoteLogSegmentId={id_text(meta.id)},"
            f" startOffset={meta.start_offset}, endOffset={meta.end_offset},"
            f" brokerId={meta.broker_id}, maxTimestampMs={meta.max_timestamp_ms},"
            f" eventTimestampMs={meta.event_timestamp_ms}, segmentLeaderEpochs={{{epochs}}},"
            f" segmentSizeInBytes={meta.segment_size_bytes}, customMetadata=Optional.empty,"
            f" state={meta.state.name}, txnIdxEmpty={str(meta.txn_index_empty).lower()}}}"
        )
    update = event.update
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={id_text(update.id)},"
        f" customMetadata=Optional.empty, state={update.state.name},"
        f" eventTimestampMs={update.event_timestamp_ms}, brokerId={update.broker_id}}}"
    )


@pytest.mark.parametrize("partition", PARTITIONS)
def test_values_decode_to_what_kafkas_dump_tool_printed(partition: str) -> None:
    printed = [as_kafka_prints(records.decode(value)) for value in log_values(partition)]
    assert printed == dump_lines(partition)
    assert printed


@pytest.mark.parametrize("partition", PARTITIONS)
def test_values_encode_again_byte_for_byte(partition: str) -> None:
    for value in log_values(partition):
        assert records.encode(records.decode(value)) == value


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_state_tables_accept_kafkas_history(partition: str) -> None:
    fold = Fold(MemoryStore(), 0)
    for offset, value in enumerate(log_values(partition)):
        verdict = fold.take(records.decode(value), order=offset, seen_ms=0)
        assert verdict is Verdict.ACCEPTED


def test_after_kafkas_history_the_segments_are_those_in_its_store() -> None:
    store = GOLDEN / "remote-tier/kafka-tiered-storage"
    stored = {path.name.split(".")[0] for path in store.glob("*/*.log")}
    fold = Fold(MemoryStore(), 0)
    for partition in PARTITIONS:
        for offset, value in enumerate(log_values(partition)):
            fold.take(records.decode(value), order=offset, seen_ms=0)
    finished = {
        f"{change.after.metadata.start_offset:020d}-{uuid_to_text(segment_id)}"
        for (_, segment_id), change in fold.changes.segments.items()
        if change.after and change.after.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
    }
    assert finished == stored
