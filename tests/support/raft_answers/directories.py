"""Log directories in which a controller of Kafka begins: formatted by Kafka's tool, filled by us.

`Content` is small and has several epochs, so that logs can differ in every way.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.files.epoch_checkpoint import EpochEntry
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    dump_partition_metadata,
    parse_meta_properties,
)
from kafka_protocol.records.control import control_batch, leader_change
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.image.records import make
from metadata_topic.quorum.driver.quorum_state_file import QUORUM_STATE
from metadata_topic.quorum.log.batches import data_batch, whole_batches
from metadata_topic.quorum.log.metadata_log import METADATA_TOPIC_ID
from metadata_topic.quorum.snapshot.snapshots import snapshot_chunks
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from metadata_topic.raft.messages import SUFFIX, SnapshotId
from tests.support.kafka.tools import kafka_tool

CLUSTER_ID = "tidemarkPeerClusterId0"
TIMESTAMP_MS = 1_700_000_000_000
FEATURE = make("FeatureLevelRecord", name="metadata.version", feature_level=30)


@dataclass(frozen=True)
class Content:
    """What a log holds.

    Attributes:
        epochs: (epoch, first offset), each begun by a LEADER_CHANGE.
        end_offset: exclusive.
        snapshots: (end offset, epoch).
    """

    epochs: tuple[tuple[int, int], ...] = ()
    end_offset: int = 0
    snapshots: tuple[SnapshotId, ...] = ()


LONG = Content(((1, 0), (3, 5), (4, 8)), 10)
CUT = Content(((4, 10), (6, 12), (8, 16)), 18, (SnapshotId(10, 4), SnapshotId(14, 6)))


def format_with_kafka(config: Path, *options: str) -> str:
    """Format with Kafka's storage tool."""
    return kafka_tool("storage", "format", "-t", CLUSTER_ID, "-c", str(config), *options)


def directory_id(logs: Path) -> bytes:
    """Of the one log directory."""
    found = parse_meta_properties((logs / META_PROPERTIES).read_bytes()).directory_id
    assert found is not None
    return found


def fill(logs: Path, content: Content, voters: Sequence[int]) -> None:
    """Write a log and its snapshots into a formatted directory."""
    directory = logs / METADATA_DIRECTORY
    directory.mkdir(exist_ok=True)
    if not content.epochs:
        return
    start = content.epochs[0][1]
    batches = bytearray()
    for number, (epoch, base) in enumerate(content.epochs):
        after = content.epochs[number + 1 :]
        end = after[0][1] if after else content.end_offset
        batches += control_batch(
            [leader_change(2, voters, voters)],
            base_offset=base,
            leader_epoch=epoch,
            timestamp_ms=TIMESTAMP_MS,
        )
        for offset in range(base + 1, end):
            record = FEATURE if offset == 1 else make("NoOpRecord")
            batches += data_batch(
                [record], base_offset=offset, epoch=epoch, timestamp_ms=TIMESTAMP_MS
            )
    (directory / f"{start:020d}.log").write_bytes(batches)
    entries = [EpochEntry(epoch, base) for epoch, base in content.epochs]
    (directory / "leader-epoch-checkpoint").write_bytes(epoch_checkpoint.dump(entries))
    (directory / PARTITION_METADATA).write_bytes(dump_partition_metadata(METADATA_TOPIC_ID))
    for snapshot_id in content.snapshots:
        chunks = snapshot_chunks(
            [FEATURE],
            snapshot_id=snapshot_id,
            last_contained_timestamp_ms=TIMESTAMP_MS,
            now_ms=lambda: TIMESTAMP_MS,
        )
        (directory / snapshot_id.file_name).write_bytes(b"".join(chunks))


def write_quorum_state(
    logs: Path,
    fields: Mapping[str, object],
    *,
    is_dynamic: bool,
    voters: Sequence[int] = (1, 2, 3),
) -> None:
    """A quorum-state of the data version that fits; `fields` replace those of epoch 0."""
    state: dict[str, object] = {"leaderId": -1, "leaderEpoch": 0, "votedId": -1}
    if is_dynamic:
        state |= {"votedDirectoryId": uuid_to_text(bytes(16)), "data_version": 1}
    else:
        current = [{"voterId": voter} for voter in voters]
        state |= {"clusterId": "", "appliedOffset": 0, "currentVoters": current, "data_version": 0}
    directory = logs / METADATA_DIRECTORY
    directory.mkdir(exist_ok=True)
    (directory / QUORUM_STATE).write_text(json.dumps(state | dict(fields)))


def read_quorum_state(logs: Path) -> dict[str, object] | None:
    """What a controller has persisted, without the fields that are always the same."""
    try:
        state = json.loads((logs / METADATA_DIRECTORY / QUORUM_STATE).read_text())
    except FileNotFoundError:
        return None
    for name in ("clusterId", "appliedOffset", "currentVoters"):
        state.pop(name, None)
    assert isinstance(state, dict)
    return state


@dataclass(frozen=True)
class LogFacts:
    """What is in a log directory now."""

    start: int
    end: int
    last_epoch: int
    epochs: list[list[int]]
    snapshots: list[list[int]]
    batches: list[list[int]]


def read_log(logs: Path) -> LogFacts:
    """Read batches and names of snapshots."""
    directory = logs / METADATA_DIRECTORY
    epochs: list[list[int]] = []
    batches: list[list[int]] = []
    start, end = 0, 0
    for number, path in enumerate(sorted(directory.glob("*.log"))):
        if number == 0:
            start = end = int(path.stem)
        for _, header in whole_batches(path.read_bytes()):
            epoch = header.partition_leader_epoch
            if not epochs or epochs[-1][0] != epoch:
                epochs.append([epoch, header.base_offset])
            end = header.next_offset
            batches.append([header.base_offset, end, epoch])
    names = [path.name.removesuffix(SUFFIX) for path in directory.glob(f"*{SUFFIX}")]
    snapshots = sorted([int(part) for part in name.split("-")] for name in names)
    last = epochs[-1][0] if epochs else snapshots[-1][1] if snapshots else 0
    return LogFacts(start, end, last, epochs, snapshots, batches)
