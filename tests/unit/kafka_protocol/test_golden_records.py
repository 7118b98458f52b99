"""Records of Kafka's internal topics decode to what its dump tool printed, and encode the same."""

import base64
import json
from typing import Any

import pytest

from kafka_protocol.files import metadata_value
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.control import (
    ControlType,
    control_entry,
    control_type,
    decode_control,
)
from kafka_protocol.records.records import Record, iter_records
from kafka_protocol.wire.codec import family_records, message
from kafka_protocol.wire.primitives import uuid_to_text
from tests.support.samples.protocol_golden import (
    dumped_files,
    dumps,
    golden_file,
    kafka_json,
)


def printed_records(dumped: str, *, control: bool) -> list[tuple[Record, str]]:
    """Records of a dumped file with their lines, either the control records or the others."""
    data = golden_file(dumped).read_bytes()
    lines = iter([line for line in dumps()[dumped] if line.startswith("| offset")])
    found = []
    for position, header in iter_batches(data):
        for record in iter_records(data, position):
            line = next(lines)
            if header.is_control == control:
                found.append((record, line))
    return found


KRAFT_FILES = [
    dumped
    for dumped in dumped_files(".log") + dumped_files(".checkpoint")
    if dumped.startswith("cluster-metadata/")
]


@pytest.mark.parametrize("dumped", KRAFT_FILES)
def test_cluster_metadata_records_are_those_kafka_printed(dumped: str) -> None:
    for record, line in printed_records(dumped, control=False):
        printed = json.loads(line.partition(" payload: ")[2])
        assert record.value is not None
        decoded = metadata_value.decode(metadata_value.CLUSTER_METADATA, record.value)
        name = printed["type"].title().replace("_", "")
        assert (decoded.name, decoded.version) == (name, printed["version"])
        shown = kafka_json(message(decoded.name), decoded.record, decoded.version)
        assert shown == printed["data"]
        assert metadata_value.encode(*decoded) == record.value


LABELS = {
    ControlType.LEADER_CHANGE: ("LeaderChangeMessage", "LeaderChange: "),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeaderRecord", "SnapshotHeader "),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooterRecord", "SnapshotFooter "),
    ControlType.KRAFT_VERSION: ("KRaftVersionRecord", "KRaftVersion "),
    ControlType.KRAFT_VOTERS: ("VotersRecord", "KRaftVoters "),
}


@pytest.mark.parametrize("dumped", dumped_files(".log") + dumped_files(".checkpoint"))
def test_control_records_are_those_kafka_printed(dumped: str) -> None:
    for record, line in printed_records(dumped, control=True):
        kind, value = decode_control(record)
        assert control_type(record) == kind
        if kind in LABELS:
            name, label = LABELS[kind]
            printed = json.loads(line.partition(f"headerKeys: [] {label}")[2])
            assert kafka_json(message(name), value, 0) == printed
        else:
            marker = f"endTxnMarker: {kind.name} coordinatorEpoch: {value.coordinator_epoch}"
            assert line.endswith(marker)
        assert control_entry(kind, value).value == record.value


def remote_segment_line(record: Any, *, is_update: bool) -> str:
    """A remote segment's metadata as Kafka's toString() writes it."""
    states = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED")
    states += ("DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
    partition = record.remote_log_segment_id.topic_id_partition
    segment_id = (
        f"remoteLogSegmentId=RemoteLogSegmentId{{topicIdPartition={uuid_to_text(partition.id)}:"
        f"{partition.name}-{partition.partition}, "
        f"id={uuid_to_text(record.remote_log_segment_id.id)}}}"
    )
    state = f"state={states[record.remote_log_segment_state]}"
    if is_update:
        return (
            f"RemoteLogSegmentMetadataUpdate{{{segment_id}, customMetadata=Optional.empty, {state}"
            f", eventTimestampMs={record.event_timestamp_ms}, brokerId={record.broker_id}}}"
        )
    epochs = ", ".join(f"{e.leader_epoch}={e.offset}" for e in record.segment_leader_epochs)
    return (
        f"RemoteLogSegmentMetadata{{{segment_id}, startOffset={record.start_offset}, "
        f"endOffset={record.end_offset}, brokerId={record.broker_id}, "
        f"maxTimestampMs={record.max_timestamp_ms}, "
        f"eventTimestampMs={record.event_timestamp_ms}, segmentLeaderEpochs={{{epochs}}}, "
        f"segmentSizeInBytes={record.segment_size_in_bytes}, customMetadata=Optional.empty, "
        f"{state}, txnIdxEmpty={str(record.txn_index_empty).lower()}}}"
    )


def test_remote_log_metadata_records_are_those_kafka_printed() -> None:
    count = 0
    for dumped in dumped_files(".log"):
        if not dumped.startswith("remote-tier/metadata-topic"):
            continue
        for record, line in printed_records(dumped, control=False):
            assert record.value is not None
            decoded = metadata_value.decode(metadata_value.REMOTE_LOG_METADATA, record.value)
            is_update = decoded.name == "RemoteLogSegmentMetadataUpdateRecord"
            shown = remote_segment_line(decoded.record, is_update=is_update)
            assert line.partition(" payload: ")[2] == shown
            assert metadata_value.encode(*decoded) == record.value
            count += 1
    assert count > 50


def coordinator_values(name: str, data: bytes) -> tuple[Any, bytes]:
    """JSON of a value (int16 version in front) and its bytes written again."""
    version = int.from_bytes(data[:2], "big")
    schema = message(name)
    value, end = schema.decode(data, version, 2)
    assert end == len(data)
    shown = {"version": str(version), "data": kafka_json(schema, value, version)}
    return shown, data[:2] + schema.encode(value, version)


def compare_embedded(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """The tool prints a consumer's own bytes opened: compare them opened, then leave them out."""
    for field, name in (
        ("subscription", "ConsumerProtocolSubscription"),
        ("assignment", "ConsumerProtocolAssignment"),
    ):
        data, printed = base64.b64decode(ours.pop(field)), theirs.pop(field)
        if isinstance(printed, dict):
            version = int.from_bytes(data[:2], "big")
            value, _ = message(name).decode(data, version, 2)
            for key, content in kafka_json(message(name), value, version).items():
                assert (printed[key] or None) == (content or None)  # null is printed as ""


@pytest.mark.parametrize(
    ("topic", "family"),
    [("__consumer_offsets", "consumer_offsets"), ("__transaction_state", "transaction_state")],
)
def test_coordinator_records_are_those_kafka_printed(topic: str, family: str) -> None:
    values = family_records(family)
    names = {kind: name.removesuffix("Value") for kind, name in values.items()}
    seen = set()
    for dumped in dumped_files(".log"):
        if not dumped.startswith(f"consumer-offsets/{topic}"):
            continue
        for record, line in printed_records(dumped, control=False):
            assert record.key is not None
            kind = int.from_bytes(record.key[:2], "big")
            if kind not in names:  # share and streams groups
                continue
            seen.add(kind)
            key_text, _, value_text = line.partition(" key: ")[2].partition(" payload: ")
            schema = message(names[kind] + "Key")
            key, end = schema.decode(record.key, 0, 2)
            assert end == len(record.key)
            assert record.key[:2] + schema.encode(key, 0) == record.key
            assert json.loads(key_text) == {"type": str(kind), "data": kafka_json(schema, key, 0)}
            if record.value is None:
                assert value_text == "<DELETE>"
                continue
            shown, again = coordinator_values(names[kind] + "Value", record.value)
            assert again == record.value
            printed = json.loads(value_text)
            for ours, theirs in zip(
                shown["data"].get("members", []), printed["data"].get("members", []), strict=True
            ):
                compare_embedded(ours, theirs)
            assert printed == shown
    assert seen >= ({0} if family == "transaction_state" else {1, 2, 3, 5, 6, 7, 8, 16})
