"""What the metadata log of this node says of a topic, read beside a running or a stopped broker.

Nothing is repaired or removed.
"""

from broker.config.broker_config import BrokerConfig
from broker.live_config import LiveConfig
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.log_loading import METADATA_TOPIC
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.format import METADATA_DIRECTORY
from metadata_topic.quorum.recovery import read_directory
from metadata_topic.quorum.snapshots import SnapshotFiles
from runtime.dice import SystemDice
from runtime.disk import Disk


class OfflineLogError(Exception):
    """What is asked for cannot be found in the files of this node."""


def partition_of(topic: str, partition: int) -> TopicPartition:
    """Name a partition of a topic.

    Raises:
        OfflineLogError: it is the metadata log.
    """
    if topic == METADATA_TOPIC:
        raise OfflineLogError(f"{topic} is no partition of a topic: it has its own recovery")
    return TopicPartition(topic, partition)


def read_image(config: BrokerConfig, disk: Disk) -> MetadataImage:
    """The newest image that the metadata directory holds.

    Raises:
        OfflineLogError: there is no metadata directory.
        UnusableMetadataError: a start would refuse it.
    """
    directory = config.metadata_log_dir / METADATA_DIRECTORY
    if not disk.is_dir(directory):
        raise OfflineLogError(f"{directory} is not there: what the topics are is not known")
    found = read_directory(directory, files=SnapshotFiles(directory, disk, SystemDice()), disk=disk)
    return found.loader.take()[0]


def log_config(config: BrokerConfig, topic: str, disk: Disk) -> LogConfig:
    """What the logs of a topic obey.

    Raises:
        OfflineLogError: the metadata has no such topic, or is not here.
    """
    image = read_image(config, disk)
    if topic not in image.topics_by_name:
        raise OfflineLogError(f"the metadata has no topic {topic}: its settings are not known")
    return LiveConfig(config, lambda: image).log_config(topic)
