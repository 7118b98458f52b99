"""`remote adopt`, the doing: reads the files of a stopped broker, and writes what was decided.

One file is replaced, at once: `tidemark-accepted` for a log end, which the next start makes, or
`leader-epoch-checkpoint` for a chain. A kill leaves the file of before or the new one. The undo
file is written before it.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry
from kafka_protocol.wire.primitives import uuid_from_any_text, uuid_to_text
from local_log.checked_files import CheckedFiles
from local_log.file_names import EPOCH_CHECKPOINT
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.recovery.acceptance import ACCEPTED, write_accepted
from local_log.recovery.inspection import Inspection
from local_log.recovery.recovery import chain_of_batches
from local_log.segment.segment import LogSegment
from rlm.link.messages import LogDescription
from rlmm.api import PartitionHistory
from rlmm.rocksdb_store import read_history
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageManager,
)
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.disk import Disk
from tidemark.node_files.offline_topics import OfflineLogError, inspections, read_image
from tidemark.remote.adoption import (
    AdoptRefusedError,
    EndAdoption,
    adopt_chain,
    described,
)
from tidemark.remote.claim import METADATA_CACHE, locked


@dataclass(frozen=True, slots=True)
class Found:
    """A partition of the stopped broker, and what its cache of the remote metadata says of it."""

    cluster_id: str
    inspection: Inspection
    log: LogDescription
    history: PartitionHistory

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self.inspection.request.directory

    @property
    def name(self) -> str:
        """TOPIC-PARTITION, the form that health uses."""
        topic, partition = self.inspection.partition
        return f"{topic}-{partition}"


@contextmanager
def refusals() -> Iterator[None]:
    """Show why it was refused as the other offline commands do.

    Raises:
        OfflineLogError: that.
    """
    try:
        yield
    except AdoptRefusedError as error:
        raise OfflineLogError(str(error)) from error


@contextmanager
def stopped_partition(
    config: BrokerConfig, topic: str, partition: int, disk: Disk
) -> Iterator[Found]:
    """Look at the partition while no other process can open it.

    Raises:
        DirectoryError, LogDirectoryError: the broker or its tier runs.
        OfflineLogError: the partition or what is remote of it is not known here.
    """
    with locked(config, disk) as cluster_id:
        found = inspections(config, topic, partition, disk)
        if len(found) > 1:
            places = ", ".join(str(one.request.directory) for one in found)
            raise OfflineLogError(
                f"{topic}-{partition} is in several log directories: {places}; "
                "move all but one away"
            )
        topic_id = read_image(config, disk).topics_by_name[topic].id
        cache = config.metadata_log_dir / METADATA_CACHE
        history = read_history(cache, (topic_id, partition))
        if history is None:
            raise OfflineLogError(
                f"{cache} does not know {topic}-{partition}: start the broker until health names "
                "the loss, then stop it"
            )
        with refusals():
            log = described(found[0], topic_id, chain_of_batches(segments_of(found[0], disk)))
        yield Found(cluster_id, found[0], log, history)


def segments_of(found: Inspection, disk: Disk) -> list[LogSegment]:
    """Those that stay at the next start."""
    return [
        LogSegment(disk, found.request.directory, one.base_offset, one.whole_bytes)
        for one in found.survey.segments
        if one.base_offset not in found.plan.aside
    ]


def end_lines(found: Found, decided: EndAdoption) -> Iterator[str]:
    """The effect of adopting an end, for the question."""
    adopted, log = decided.adopted, found.log
    yield f"{found.name} in {found.directory}"
    yield f"  local records now:  offsets {log.local_log_start_offset} to {log.log_end_offset - 1}"
    yield f"  new records begin:  at offset {adopted.end}"
    if adopted.begin is None:
        yield "  local segments:     stay"
    else:
        yield (
            f"  local segments:     set aside as *.cut; offsets below {adopted.begin} are read "
            "from the remote store"
        )
    first, end = decided.gap
    if first < end:
        yield f"  given up:           offsets {first} to {end - 1}, a gap that readers pass over"
    first, end = decided.given_up
    if first < end:
        yield (
            f"  given up:           the local records of offsets {first} to {end - 1}: those of "
            "the remote store are others, and come before them"
        )
    first, end = decided.doubled
    if first < end:
        yield (
            f"  given twice:        offsets {first} to {end - 1}: other records had them before "
            "and are lost; those here stay"
        )
    yield f"  epoch chain:        {chain_text(adopted.chain)}"


def chain_text(chain: Sequence[EpochEntry]) -> str:
    """A chain for people."""
    return ", ".join(f"epoch {epoch} from {start}" for epoch, start in chain) or "no entries"


def write_end(disk: Disk, found: Found, decided: EndAdoption) -> None:
    """Order it; the next start does it."""
    before = found.inspection.survey.accepted
    accepted = replace(before, adopted=decided.adopted, adopted_epoch=decided.epoch)
    write_accepted(disk, found.directory, accepted)


def segment_of(found: Found, text: str) -> RemoteLogSegmentMetadata:
    """The segment that a person named.

    Raises:
        OfflineLogError: the metadata know none of that id.
    """
    try:
        wanted = uuid_from_any_text(text)
    except ValueError:
        wanted = b""
    for segment in found.history.segments:
        if segment.metadata.id.id == wanted:
            return segment.metadata
    raise OfflineLogError(f"{found.name} has no remote segment {text[:60]!r}")


def chain_by(
    found: Found, segment: RemoteLogSegmentMetadata, storage: RemoteStorageManager, disk: Disk
) -> list[EpochEntry]:
    """The chain by that segment's index, compared with the records and each local batch.

    Raises:
        OfflineLogError: the index cannot be read, or does not fit.
    """
    try:
        with storage.fetch_index(segment, IndexType.LEADER_EPOCH) as stream:
            index = epoch_checkpoint.parse(stream.read())
    except (RemoteResourceNotFoundError, RemoteObjectDamagedError, CorruptFileError) as error:
        raise OfflineLogError(f"the index of that segment cannot be read: {error}") from error
    with refusals():
        chain = adopt_chain(found.log, found.history, segment, index)
    cache = LeaderEpochCache(chain)
    for local in segments_of(found.inspection, disk):
        for _, header in local.batches(0):
            if header.partition_leader_epoch not in (-1, cache.epoch_for(header.base_offset)):
                raise OfflineLogError(f"the batch of offset {header.base_offset} contradicts it")
        local.release()
    return chain


def write_chain(disk: Disk, found: Found, chain: Sequence[EpochEntry]) -> None:
    """Replace the chain on the disk, durably."""
    CheckedFiles(disk, found.directory).write(EPOCH_CHECKPOINT, epoch_checkpoint.dump(chain))


def undo_text(disk: Disk, found: Found, name: str, now_ms: int) -> str:
    """The file that is replaced, as it was.

    Args:
        disk: where it is.
        found: of which partition.
        name: of the file: `tidemark-accepted` or `leader-epoch-checkpoint`.
        now_ms: wall clock.
    """
    assert name in (ACCEPTED, EPOCH_CHECKPOINT)
    path = found.directory / name
    before = disk.read_file(path) if disk.exists(path) else None
    content = {
        "what": f"tidemark remote adopt replaced {path}",
        "takeBack": "before the next start: tidemark remote adopt --take-back THIS_FILE",
        "clusterId": found.cluster_id,
        "topicId": uuid_to_text(found.log.topic_id),
        "partition": found.log.partition,
        "adoptedAtMs": now_ms,
        "file": name,
        "before": None if before is None else b64encode(before).decode(),
    }
    return json.dumps(content, indent=1) + "\n"


def take_back(disk: Disk, found: Found, undo: Path) -> str:
    """Put the replaced file back.

    Returns:
        Its name.

    Raises:
        OfflineLogError: the undo file is of another partition, or none.
    """
    try:
        content = json.loads(disk.read_file(undo))
        whose = content["topicId"], content["partition"]
        name, before = content["file"], content["before"]
        data = None if before is None else b64decode(before, validate=True)
    except (ValueError, KeyError, TypeError) as error:
        raise OfflineLogError(f"{undo} is no undo file of `remote adopt`: {error}") from error
    own = uuid_to_text(found.log.topic_id), found.log.partition
    if whose != own or name not in (ACCEPTED, EPOCH_CHECKPOINT):
        raise OfflineLogError(f"{undo} is of another partition than {found.name}")
    path = found.directory / name
    if data is None:
        disk.unlink(path)
    elif name == EPOCH_CHECKPOINT:
        CheckedFiles(disk, found.directory).write(name, data)
    else:
        disk.atomic_write(path, data)
    return str(path)
