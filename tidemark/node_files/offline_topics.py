"""A topic in the metadata log of this node, read beside a running or a stopped broker.

Nothing is repaired or removed.
"""

from contextlib import suppress
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.replica.target_replica import target_replica
from kafka_protocol.errors import CorruptFileError, TidemarkError
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    parse_meta_properties,
    parse_partition_metadata,
)
from kafka_protocol.files.segment_names import partition_dir
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, TopicPartition
from local_log.checked_files import CheckedFiles
from local_log.config import LogConfig
from local_log.file_names import PARTITION_METADATA
from local_log.manager.loading import known_log_start, known_recovery_point
from local_log.manager.log_dir import CLEAN_SHUTDOWN, CLEANER_OFFSETS, HIGH_WATERMARKS, LogDir
from local_log.manager.placement import FoundReplica, place
from local_log.recovery.inspection import Inspection, inspect
from local_log.recovery.survey import OpenRequest
from metadata_topic.controller.directories import known_directories
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from metadata_topic.quorum.start.recovery import newest_usable, read_directory
from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.rng import SystemRng


class OfflineLogError(TidemarkError):
    """The files of this node do not have what is asked for."""


def partition_of(topic: str, partition: int) -> TopicPartition:
    """Name a partition of a topic.

    Raises:
        OfflineLogError: it is the metadata log.
    """
    if topic == CLUSTER_METADATA_TOPIC:
        raise OfflineLogError(f"{topic} is no partition of a topic: it has its own recovery")
    return TopicPartition(topic, partition)


def read_image(config: BrokerConfig, disk: Disk) -> MetadataImage:
    """The newest image that the metadata directory holds, as a start reads it.

    Raises:
        OfflineLogError: there is no metadata directory.
        UnusableMetadataError: a start would refuse it.
        OSError: the disk failed.
    """
    directory = config.metadata_log_dir / METADATA_DIRECTORY
    if not disk.is_dir(directory):
        raise OfflineLogError(f"{directory} is not there: what the topics are is not known")
    found = read_directory(directory, files=_snapshots(config, disk), disk=disk)
    return found.loader.take()[0]


def refused_snapshots(config: BrokerConfig, disk: Disk) -> list[str]:
    """Say which snapshots of the metadata a start puts aside, and why.

    Raises:
        UnusableMetadataError, OSError: as `read_image`.
    """
    files = _snapshots(config, disk)
    _, _, damaged = newest_usable(files, files.ids())
    return [
        f"{files.path(snapshot_id)} cannot be used: {reason}; a start puts it aside"
        for snapshot_id, reason in damaged
    ]


def _snapshots(config: BrokerConfig, disk: Disk) -> SnapshotFiles:
    """Those of another cluster than the metadata directory's are damaged, as at a start."""
    cluster_id = None
    with suppress(
        FileNotFoundError, CorruptFileError
    ):  # a start refuses the directory, and says so
        data = disk.read_file(config.metadata_log_dir / META_PROPERTIES)
        cluster_id = parse_meta_properties(data).cluster_id
    directory = config.metadata_log_dir / METADATA_DIRECTORY
    return SnapshotFiles(directory, disk, SystemRng(), cluster_id=cluster_id)


def log_config(config: BrokerConfig, topic: str, disk: Disk) -> LogConfig:
    """The settings of the logs of a topic.

    Raises:
        OfflineLogError: the metadata has no such topic, or is not here.
    """
    image = read_image(config, disk)
    if topic not in image.topics_by_name:
        raise OfflineLogError(f"the metadata has no topic {topic}: its settings are not known")
    return LiveConfig(config, lambda: image).log_config(topic)


def inspections(config: BrokerConfig, topic: str, partition: int, disk: Disk) -> list[Inspection]:
    """Look at a partition in every log directory that has it; nothing is changed.

    Raises:
        OfflineLogError: no directory has it, or its topic's settings are not known.
        OSError: a directory cannot be read.
    """
    tp = partition_of(topic, partition)
    paths = [path for path in config.log_dirs if disk.is_dir(path / partition_dir(tp))]
    if not paths:
        raise OfflineLogError(
            f"{partition_dir(tp)} is in none of log.dirs={','.join(map(str, config.log_dirs))}"
        )
    settings, now_ms = log_config(config, topic, disk), SystemClock().wall_ms()
    found = []
    for path in paths:
        home, directory = LogDir(path, disk), path / partition_dir(tp)
        home.read_checkpoints()
        request = OpenRequest(
            tp,
            directory,
            settings,
            recovery_point=known_recovery_point(home, tp, directory),
            log_start=known_log_start(home, tp, settings, directory),
            high_watermark=home.entry(HIGH_WATERMARKS, tp) or 0,
            is_clean=disk.exists(path / CLEAN_SHUTDOWN),
            now_ms=now_ms,
            was_compacted=home.entry(CLEANER_OFFSETS, tp) is not None,
        )
        found.append(inspect(disk, request, CheckedFiles(disk, directory)))
    return found


def placement_problem(config: BrokerConfig, topic: str, partition: int, disk: Disk) -> str:
    """Say why a start does not even look at the log of a partition, with the remedy.

    Directories of another time are not validated here: `tidemark directories list` shows them.

    Returns:
        Empty if the metadata and the directories agree.

    Raises:
        OfflineLogError: it is the metadata log, or there is no metadata directory.
        OSError: the disk failed.
    """
    tp, image = partition_of(topic, partition), read_image(config, disk)
    found: list[FoundReplica] = []
    working: set[bytes] = set()
    for path in config.log_dirs:
        with suppress(OSError, CorruptFileError):  # such a directory is offline
            meta = parse_meta_properties(disk.read_file(path / META_PROPERTIES))
            if meta.directory_id is not None:
                working.add(meta.directory_id)
                if disk.is_dir(path / partition_dir(tp)):
                    found.append(_look(disk, meta.directory_id, path / partition_dir(tp)))
    known = known_directories(image, config.node_id)
    is_missing_some = len(working) < len(config.log_dirs) or not known <= working
    wanted = target_replica(
        image,
        config.node_id,
        tp,
        is_missing_some=is_missing_some,
        has_tier=config.remote_log_storage_system_enable,
    )
    if wanted is None and not found:
        return ""
    if wanted is None:
        return "the metadata have no such partition here; a start puts its directory aside"
    return place(wanted, found, working).offline


def _look(disk: Disk, directory_id: bytes, path: Path) -> FoundReplica:
    files = CheckedFiles(disk, path)
    topic_id = None if files.owner is None else files.owner.topic_id
    with suppress(FileNotFoundError, CorruptFileError):
        topic_id = parse_partition_metadata(files.read(PARTITION_METADATA))
    partition = None if files.owner is None else files.owner.partition
    return FoundReplica(directory_id, str(path), topic_id, partition)
