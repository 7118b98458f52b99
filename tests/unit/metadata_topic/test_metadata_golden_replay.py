"""Logs and snapshots written by Apache Kafka 4.3.1 become the images that Kafka had."""

import base64
import gzip
import json
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.control import ControlType
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import decode_record, encode_record
from metadata_topic.image.snapshot_records import snapshot_records
from metadata_topic.quorum.log.batches import read_batches
from metadata_topic.quorum.snapshot.snapshots import SnapshotId, read_snapshot, snapshot_chunks

GOLDEN = Path(__file__).parents[2] / "golden"
METADATA = GOLDEN / "cluster-metadata"

STATIC = METADATA / "static-quorum/__cluster_metadata-0"
DYNAMIC = METADATA / "dynamic-quorum"
# directory of logs and snapshots, suffix of its files
DIRECTORIES = [
    (STATIC, ""),
    (DYNAMIC / "controller-2/__cluster_metadata-0", ""),
    (DYNAMIC / "controller-2/__cluster_metadata-0", ".deleted"),
    (DYNAMIC / "controller-2-early/__cluster_metadata-0", ""),
    (DYNAMIC / "controller-2-early/__cluster_metadata-0", ".deleted"),
    (DYNAMIC / "broker-4/__cluster_metadata-0", ""),
]
SNAPSHOTS = [
    path for directory, end in DIRECTORIES for path in sorted(directory.glob(f"*.checkpoint{end}"))
]
DATA_FILES = sorted(
    path for path in METADATA.rglob("*") if ".log" in path.name or ".checkpoint" in path.name
)

UNKNOWN_TO_KAFKA = {"removed_tiered_topics"}


def id_of(path: Path) -> str:
    return str(path.relative_to(METADATA))


def snapshot_id(path: Path) -> SnapshotId:
    return SnapshotId(int(path.name[:20]), int(path.name[21:31]))


def image_of_snapshot(path: Path) -> MetadataImage:
    snapshot = read_snapshot(path.read_bytes())
    loader = ImageLoader(EMPTY_IMAGE)
    for record in snapshot.records:
        loader.add(record)
    end, epoch = snapshot_id(path)
    loader.end_of_batch(Provenance(end - 1, epoch, snapshot.last_contained_timestamp_ms))
    return loader.take()[0]


def load(
    logs: list[Path], base: MetadataImage, *, start: int = 0, end: int | None = None
) -> MetadataImage:
    loader = ImageLoader(base)
    for log in logs:
        for batch in read_batches(log.read_bytes()):
            header = batch.header
            if header.base_offset < start or (end is not None and header.base_offset >= end):
                continue
            for record in batch.records:
                loader.add(record)
            loader.end_of_batch(
                Provenance(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
            )
    return loader.take()[0]


def differences(left: MetadataImage, right: MetadataImage) -> list[str]:
    names = [field.name for field in fields(MetadataImage) if field.name not in UNKNOWN_TO_KAFKA]
    return [name for name in names if getattr(left, name) != getattr(right, name)]


@pytest.mark.parametrize("path", SNAPSHOTS, ids=id_of)
def test_a_snapshot_of_kafka_gives_its_own_records_back(path: Path) -> None:
    theirs = Counter(encode_record(r) for r in read_snapshot(path.read_bytes()).records)
    ours = Counter(encode_record(r) for r in snapshot_records(image_of_snapshot(path)))
    assert ours == theirs


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.checkpoint")), ids=id_of)
def test_replaying_the_log_gives_the_image_that_kafka_wrote_as_a_snapshot(path: Path) -> None:
    logs = sorted(STATIC.glob("*.log"))
    replayed = load(logs, EMPTY_IMAGE, end=snapshot_id(path).end_offset)
    assert differences(replayed, image_of_snapshot(path)) == []


def test_removed_tiered_topics_are_in_the_log_of_kafka_and_no_snapshot() -> None:
    whole = load(sorted(STATIC.glob("*.log")), EMPTY_IMAGE)
    removed = whole.removed_tiered_topics
    assert removed
    assert not set(removed) & set(whole.topics_by_id)
    for path in SNAPSHOTS:
        assert not image_of_snapshot(path).removed_tiered_topics


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.checkpoint")), ids=id_of)
def test_a_snapshot_and_the_rest_equal_the_whole_log(path: Path) -> None:
    logs = sorted(STATIC.glob("*.log"))
    image = load(logs, image_of_snapshot(path), start=snapshot_id(path).end_offset)
    assert differences(image, load(logs, EMPTY_IMAGE)) == []


def test_later_snapshots_of_a_dynamic_quorum_equal_the_first_plus_the_log() -> None:
    directory = DYNAMIC / "broker-4/__cluster_metadata-0"
    first, *later = sorted(directory.glob("*.checkpoint"))
    logs = sorted(directory.glob("*.log"))
    start = snapshot_id(first).end_offset
    assert len(later) == 2
    for path in later:
        image = load(logs, image_of_snapshot(first), start=start, end=snapshot_id(path).end_offset)
        assert differences(image, image_of_snapshot(path)) == []


def test_a_dynamic_quorum_is_replayed_from_its_first_record_on() -> None:
    directory = DYNAMIC / "controller-2-early/__cluster_metadata-0"
    logs = [directory / "00000000000000000000.log.deleted"]
    for path in sorted(directory.glob("*.checkpoint.deleted")):
        end = snapshot_id(path).end_offset
        if end <= 144:
            assert differences(load(logs, EMPTY_IMAGE, end=end), image_of_snapshot(path)) == []


@pytest.mark.parametrize("path", DATA_FILES, ids=id_of)
def test_every_record_encodes_to_the_bytes_kafka_wrote(path: Path) -> None:
    data = path.read_bytes()
    count = 0
    for position, header in iter_batches(data):
        if not header.is_control:
            for record in iter_records(data, position):
                assert record.value is not None
                assert encode_record(decode_record(record.value)) == record.value
                count += 1
    assert count or "0000000000-0000000000" in path.name


def dump_of(path: Path) -> list[dict[str, object]]:
    """Metadata records in Kafka's own dump of a file."""
    parent = path.relative_to(GOLDEN).parent
    name = path.name
    if name.endswith(".deleted"):
        parent = parent.with_name(parent.name + ".deleted-view")
        name = name.removesuffix(".deleted")
    text = GOLDEN / "dumps" / parent / f"{name}.txt"
    if text.exists():
        lines = text.read_text()
    else:
        lines = gzip.decompress(text.with_name(text.name + ".gz").read_bytes()).decode()
    payloads = (line.partition(" payload: ")[2] for line in lines.splitlines())
    return [json.loads(payload) for payload in payloads if payload]


def as_json(value: object) -> object:
    if isinstance(value, bytes):
        return uuid_to_text(value) if len(value) == 16 else base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if hasattr(type(value), "__slots__") and not isinstance(value, str | int | float):
        return {camel(name): as_json(getattr(value, name)) for name in type(value).__slots__}
    return value


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def check_contains(ours: object, theirs: object) -> None:
    """Every field in Kafka's JSON has our value; it leaves out tagged fields at their default."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        for key, value in theirs.items():
            check_contains(ours[key], value)
    elif isinstance(theirs, list):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for mine, their in zip(ours, theirs, strict=True):
            check_contains(mine, their)
    else:
        assert ours == theirs


@pytest.mark.parametrize("path", DATA_FILES, ids=id_of)
def test_records_say_what_kafkas_dump_tool_printed(path: Path) -> None:
    records = [r for batch in read_batches(path.read_bytes()) for r in batch.records]
    dumped = dump_of(path)
    assert len(records) == len(dumped)
    for record, theirs in zip(records, dumped, strict=True):
        kind = str(theirs["type"]).replace("_", "").lower()
        assert record.name.lower() == kind
        assert record.version == theirs["version"]
        check_contains(as_json(record.value), theirs["data"])


@pytest.mark.parametrize(
    "path",
    [*SNAPSHOTS, *sorted((METADATA / "formatted").rglob("*.checkpoint"))],
    ids=id_of,
)
def test_a_snapshot_is_written_byte_for_byte_as_kafka_did(path: Path) -> None:
    data = path.read_bytes()
    snapshot = read_snapshot(data)
    batches = list(read_batches(data))
    times = iter([batch.header.base_timestamp for batch in batches])
    end, epoch = (0, 0) if path.name.startswith("boot") else snapshot_id(path)
    chunks = snapshot_chunks(
        snapshot.records,
        snapshot_id=SnapshotId(end, epoch),
        last_contained_timestamp_ms=snapshot.last_contained_timestamp_ms,
        now_ms=lambda: next(times),
        kraft_version=snapshot.kraft_version,
        voters=snapshot.voters,
    )
    assert b"".join(chunks) == data


def test_the_voters_of_a_dynamic_quorum_are_read() -> None:
    path = METADATA / "formatted/initial-controllers/__cluster_metadata-0"
    snapshot = read_snapshot((path / SnapshotId(0, 0).file_name).read_bytes())
    assert snapshot.kraft_version == 1
    assert snapshot.voters is not None
    assert snapshot.voters.ids == (1, 2, 3)
    assert snapshot.voters.voters[1].endpoints[0].port == 33102


def test_a_dynamic_quorums_first_batch_has_leader_version_and_voters() -> None:
    path = DYNAMIC / "controller-2-early/__cluster_metadata-0/00000000000000000000.log.deleted"
    first = next(read_batches(path.read_bytes()))
    kinds = [kind for kind, _ in first.controls]
    assert kinds == [ControlType.LEADER_CHANGE, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
