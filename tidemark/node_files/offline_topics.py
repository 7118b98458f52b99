"""What the metadata log of this node says of a topic, read beside a running or a stopped broker.

Nothing is repaired or removed.
"""

from contextlib import suppress

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from kafka_protocol.errors import CorruptFileError, TidemarkError
from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, TopicPartition
from local_log.config import LogConfig
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from metadata_topic.quorum.start.recovery import newest_usable, read_directory
from runtime.dice import SystemDice
from runtime.disk import Disk


class OfflineLogError(TidemarkError):
    """What is asked for cannot be found in the files of this node."""


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
    return SnapshotFiles(directory, disk, SystemDice(), cluster_id=cluster_id)


def log_config(config: BrokerConfig, topic: str, disk: Disk) -> LogConfig:
    """What the logs of a topic obey.

    Raises:
        OfflineLogError: the metadata has no such topic, or is not here.
    """
    image = read_image(config, disk)
    if topic not in image.topics_by_name:
        raise OfflineLogError(f"the metadata has no topic {topic}: its settings are not known")
    return LiveConfig(config, lambda: image).log_config(topic)
