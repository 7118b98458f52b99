"""What the metadata log of this node says of a topic, read beside a running or a stopped broker.

Nothing is repaired or removed: the newest sound snapshot, then the batches after it as far as they
are whole.
"""

from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.live_config import LiveConfig
from kafka_protocol.files.segment_names import LOG, parse_segment_file, partition_dir
from local_log.config import LogConfig
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.quorum.batches import CorruptBatchError, read_batches
from metadata_topic.quorum.metadata_log import METADATA_PARTITION
from metadata_topic.quorum.snapshots import CorruptSnapshotError, SnapshotFiles
from runtime.dice import SystemDice
from runtime.disk import Disk


class OfflineLogError(Exception):
    """What is asked for cannot be found in the files of this node."""


def read_image(config: BrokerConfig, disk: Disk) -> MetadataImage:
    """The newest image that the metadata directory holds.

    Raises:
        OfflineLogError: there is no metadata directory.
    """
    directory = config.metadata_log_dir / partition_dir(METADATA_PARTITION)
    if not disk.is_dir(directory):
        raise OfflineLogError(f"{directory} is not there: what the topics are is not known")
    loader, start = ImageLoader(EMPTY_IMAGE), 0
    files = SnapshotFiles(directory, disk, SystemDice())
    for snapshot_id in reversed(files.ids()):
        try:
            records = files.read(snapshot_id).records
        except CorruptSnapshotError:
            continue
        for record in records:
            loader.add(record)
        loader.end_of_batch(Provenance(snapshot_id.end_offset - 1, snapshot_id.epoch, 0))
        start = snapshot_id.end_offset
        break
    _replay(loader, directory, disk, start)
    return loader.take()[0]


def _replay(loader: ImageLoader, directory: Path, disk: Disk, start: int) -> None:
    for name in disk.list_dir(directory):
        parsed = parse_segment_file(name)
        if parsed is None or parsed[1] != LOG:
            continue
        try:
            for batch in read_batches(disk.read_file(directory / name)):
                header = batch.header
                if header.base_offset < start:
                    continue
                for record in batch.records:
                    loader.add(record)
                loader.end_of_batch(
                    Provenance(
                        header.last_offset, header.partition_leader_epoch, header.max_timestamp
                    )
                )
        except CorruptBatchError:
            return  # being written just now, or the torn end of a stopped process


def log_config(config: BrokerConfig, topic: str, disk: Disk) -> LogConfig:
    """What the logs of a topic obey.

    Raises:
        OfflineLogError: the metadata has no such topic, or is not here.
    """
    image = read_image(config, disk)
    if topic not in image.topics_by_name:
        raise OfflineLogError(f"the metadata has no topic {topic}: its settings are not known")
    return LiveConfig(config, lambda: image).log_config(topic)
