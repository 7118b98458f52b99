"""Formatting a node's directories: identity, and the records of the first start.

Every log directory gets `meta.properties` and `bootstrap.checkpoint`. With a dynamic quorum the
metadata directory also gets the checkpoint 0-0. It has the first voters with their directory ids:
this node alone (`--standalone`) or several (`--initial-controllers`). A controller that joins such
a quorum gets none (`--no-initial-controllers`). The files equal those of Kafka's storage tool, byte
for byte, apart from times, ids and the comment lines of the properties file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_protocol.errors import InvalidRecordError, MalformedMessageError, TidemarkError
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
)
from kafka_protocol.types import CLUSTER_METADATA_TOPIC
from metadata_topic.controller.features import DEFAULT_FEATURES
from metadata_topic.image.image import METADATA_VERSION
from metadata_topic.image.records import MetadataRecord, UnknownMetadataRecordError, make
from metadata_topic.quorum.errors import UnreadableRecordError
from metadata_topic.quorum.snapshot.snapshots import (
    CorruptSnapshotError,
    SnapshotFiles,
    read_snapshot,
    snapshot_chunks,
)
from metadata_topic.raft.messages import BOOTSTRAP_ID
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.clock import Clock
from runtime.disk import Disk
from runtime.rng import Rng

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
_WAY_OUT: Final = (
    "If it was, restore the file from a copy: every log directory of this node, and every node "
    "that was formatted with the same features, has the same records in it"
)
METADATA_DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"
SET_ASIDE_DIRECTORY: Final = f"{METADATA_DIRECTORY}.set-aside"
"""Former metadata of a voter that became a broker; no controller starts on it."""


def make_dirs_durably(disk: Disk, path: Path) -> None:
    """Create a directory and its parents; returns when their names are durable.

    A power cut can lose a fsynced file in a directory whose name is not durable. The parent is
    fsynced also if the directory exists: the process that created it may have crashed before the
    fsync.
    """
    made = [path]
    while not disk.is_dir(made[-1].parent):
        made.append(made[-1].parent)
    disk.make_dirs(path)
    for directory in reversed(made):
        disk.fsync_path(directory.parent)


class AlreadyFormattedError(TidemarkError):
    """A directory has `meta.properties` already; nothing was written."""

    def __init__(self, directories: Sequence[Path]) -> None:
        names = ", ".join(str(directory) for directory in directories)
        super().__init__(f"already formatted: {names}")
        self.directories = tuple(directories)


class NotFormattedError(TidemarkError):
    """A directory lacks a file of the format step."""


@dataclass(frozen=True, slots=True)
class FormatPlan:
    """Content of the directories to format.

    Attributes:
        log_dirs: All of `log.dirs`.
        metadata_log_dir: Directory of `__cluster_metadata-0`; one of `log_dirs`.
        standalone: This node's endpoint for other controllers, to create a dynamic quorum of one
            (kraft.version 1). None with static voters (kraft.version 0).
        features: Levels to finalise; kraft.version follows from `standalone` and `voters`.
        more_records: Written after the features (credentials).
        directory_ids: Ids to use instead of random ones.
        voters: First voters of a dynamic quorum of several (kraft.version 1). If this node is one
            of them, its metadata directory gets the directory id given there.
    """

    cluster_id: str
    node_id: int
    log_dirs: tuple[Path, ...]
    metadata_log_dir: Path
    standalone: VoterEndpoint | None = None
    features: Mapping[str, int] = field(default_factory=lambda: DEFAULT_FEATURES)
    more_records: tuple[MetadataRecord, ...] = ()
    directory_ids: Mapping[Path, bytes] = field(default_factory=dict)
    voters: VoterSet | None = None


def feature_records(features: Mapping[str, int]) -> list[MetadataRecord]:
    """Make bootstrap records of feature levels above 0.

    Metadata.version first, the rest by name.
    """
    others = sorted(name for name in features if name != METADATA_VERSION)
    return [
        make("FeatureLevelRecord", name=name, feature_level=features[name])
        for name in (METADATA_VERSION, *others)
        if features.get(name, 0) > 0
    ]


def format_directory(plan: FormatPlan, *, disk: Disk, clock: Clock, rng: Rng) -> dict[Path, bytes]:
    """Write all files that a first start needs.

    `meta.properties` is written last in each directory: it marks the directory as formatted, so an
    interrupted format can be repeated.

    Returns:
        Directory id of each log directory.

    Raises:
        AlreadyFormattedError: Raised before anything is written.
    """
    done = [path for path in plan.log_dirs if disk.exists(path / META_PROPERTIES)]
    if done:
        raise AlreadyFormattedError(done)
    given = {**_own_directory(plan), **plan.directory_ids}
    ids = {path: given.get(path) or rng.uuid() for path in plan.log_dirs}
    records = [*feature_records(plan.features), *plan.more_records]
    for path in plan.log_dirs:
        make_dirs_durably(disk, path)
        disk.atomic_write(path / BOOTSTRAP_FILE, _bootstrap(records, clock))
        voters = _first_voters(plan, ids[path]) if path == plan.metadata_log_dir else None
        if voters is not None:
            _write_voters(path, voters, disk=disk, clock=clock, rng=rng)
        meta = MetaProperties(plan.cluster_id, plan.node_id, ids[path])
        disk.atomic_write(path / META_PROPERTIES, dump_meta_properties(meta))
    return ids


def _bootstrap(records: Iterable[MetadataRecord], clock: Clock) -> bytes:
    chunks = snapshot_chunks(
        records,
        snapshot_id=BOOTSTRAP_ID,
        last_contained_timestamp_ms=0,
        now_ms=clock.wall_ms,
    )
    return b"".join(chunks)


def _own_directory(plan: FormatPlan) -> dict[Path, bytes]:
    """Id of the metadata directory, if the first voters include this node."""
    mine = None if plan.voters is None else plan.voters.get(plan.node_id)
    return {} if mine is None else {plan.metadata_log_dir: mine.key.directory_id}


def _first_voters(plan: FormatPlan, directory_id: bytes) -> VoterSet | None:
    if plan.standalone is None:
        return plan.voters
    return VoterSet((Voter(ReplicaKey(plan.node_id, directory_id), (plan.standalone,)),))


def _write_voters(
    metadata_log_dir: Path, voters: VoterSet, *, disk: Disk, clock: Clock, rng: Rng
) -> None:
    directory = metadata_log_dir / METADATA_DIRECTORY
    make_dirs_durably(disk, directory)
    chunks = snapshot_chunks(
        (),
        snapshot_id=BOOTSTRAP_ID,
        last_contained_timestamp_ms=clock.wall_ms(),
        now_ms=clock.wall_ms,
        kraft_version=1,
        voters=voters,
    )
    SnapshotFiles(directory, disk, rng).write(BOOTSTRAP_ID, chunks)


def read_bootstrap(log_dir: Path, disk: Disk) -> list[MetadataRecord]:
    """Read the format step's records for the first start.

    Raises:
        NotFormattedError: There is no bootstrap file.
        CorruptSnapshotError: It is incomplete or damaged.
        UnreadableRecordError: This version cannot read a record in it.
    """
    path = log_dir / BOOTSTRAP_FILE
    try:
        return read_snapshot(disk.read_file(path)).records
    except FileNotFoundError:
        raise NotFormattedError(
            f"{path} is missing: was {log_dir} formatted? Nothing was changed. {_WAY_OUT}"
        ) from None
    except CorruptSnapshotError as error:
        raise CorruptSnapshotError(f"{path}: {error}. Nothing was changed. {_WAY_OUT}") from error
    except (UnknownMetadataRecordError, InvalidRecordError, MalformedMessageError) as error:
        raise UnreadableRecordError(
            f"{path} has a record that this version cannot read: {error}. Nothing was changed. "
            "Start the version that formatted the directory, or a later one"
        ) from error
