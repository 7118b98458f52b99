"""Why a partition is offline whatever its files say: where the metadata mean it to be."""

from contextlib import suppress
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.replica.wanted import wanted_replica
from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    parse_meta_properties,
    parse_partition_metadata,
)
from kafka_protocol.files.segment_names import partition_dir
from local_log.checked_files import CheckedFiles
from local_log.file_names import PARTITION_METADATA
from local_log.manager.placement import FoundReplica, place
from metadata_topic.controller.directories import known_directories
from runtime.disk import Disk
from tidemark.node_files.offline_topics import partition_of, read_image


def placement_problem(config: BrokerConfig, topic: str, partition: int, disk: Disk) -> str:
    """Say why a start does not even look at the log of a partition, with the way out.

    Directories of another time are not judged here: `tidemark directories list` shows them.

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
    wanted = wanted_replica(image, config.node_id, tp, is_missing_some=is_missing_some)
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
