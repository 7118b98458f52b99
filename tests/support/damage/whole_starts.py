"""A broker's log directories and their starts in one process: all but network, tier and quorum.

The order is that of `broker.Broker`: directories, settled by the metadata, logs, lives, registered,
put aside, hosted. The metadata are an image in memory; three directories lie below one root, of
which the first is the metadata's.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from broker.node.directories import Directories, DirectoryError, open_directories
from broker.node.directory_checks import settle_directories, write_incarnation, writes_sidecars
from broker.replica.hosting import ControllerRequests
from broker.replica.manager import ReplicaManager
from broker.replica.target_replica import (
    assigned_partitions,
    found_replicas,
    refused_replicas,
    target_replica,
)
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
)
from local_log.config import LogConfig
from local_log.manager.log_dirs import LogManager
from metadata_topic.controller.brokers import register_broker, unfence_broker
from metadata_topic.controller.directories import (
    FoundReplicas,
    ReplicaId,
    assign_directories,
)
from metadata_topic.image.image import METADATA_VERSION, MetadataImage
from metadata_topic.image.model import DIRECTORY_UNASSIGNED
from metadata_topic.image.records import make
from runtime.disk import Disk, OpenFile
from tests.support.samples.metadata import apply, cluster_of, registration_of
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated

NODE = 1
NOW_MS = 1_700_000_000_000
CLUSTER = "AAAAAAAAAAAAAAAAAAAAQQ"
METADATA, FIRST, SECOND = "metadata", "first", "second"


class QuickDisk(FaultyDisk):
    """The power never goes, so that the real disk is spared the work."""

    def fsync(self, file: OpenFile) -> None:
        self._check("fsync", file.path)

    def fsync_path(self, path: Path) -> None:
        self._check("fsync_path", path)


def format_directories(root: Path) -> None:
    for index, name in enumerate((METADATA, FIRST, SECOND)):
        (root / name).mkdir(parents=True)
        meta = MetaProperties(CLUSTER, NODE, bytes([index + 1]) * 16)
        (root / name / META_PROPERTIES).write_bytes(dump_meta_properties(meta))


class WholeStart:
    """One life.

    Attributes:
        image: the metadata; what happens here is committed to it at once.
    """

    def __init__(
        self,
        root: Path,
        image: MetadataImage | None = None,
        *,
        configs: Mapping[str, LogConfig],
        life: int = 1,
        disk: Disk | None = None,
    ) -> None:
        self.root = root
        self.image = image or cluster_of(features={METADATA_VERSION: 30})
        self.life = life
        self.disk = disk or QuickDisk()
        self._configs = configs
        self._asked: dict[ReplicaId, bytes] = {}
        self._directories: Directories | None = None
        self.broker_epoch = -1

    def start(self) -> None:
        """As a broker starts.

        Raises:
            DirectoryError: it cannot.
        """
        log_dirs, image, disk = [self.root / FIRST, self.root / SECOND], self.image, self.disk
        found = self._directories = open_directories(
            log_dirs, metadata_path=self.root / METADATA, node_id=NODE, disk=disk
        )
        ports = simulated(self.life, clock=ManualClock(NOW_MS), disk=disk)
        is_missing_some = settle_directories(
            found, image, log_dirs=log_dirs, node_id=NODE, disk=disk, rng=ports.rng
        )
        logs = self.logs = LogManager(log_dirs, self._config_for, ports)
        for path, reason in found.offline.items():
            logs.put_offline(path, reason)
        previous = image.brokers.get(NODE)
        logs.load(
            lambda tp: target_replica(
                image, NODE, tp, is_missing_some=is_missing_some, has_tier=True
            ),
            compare=writes_sidecars(image, NODE),
            last_broker_epoch=None if previous is None else previous.epoch,
            assigned=assigned_partitions(image, NODE),
        )
        registration = registration_of(NODE, life=self.life)
        for directory in logs.online_dirs():
            try:
                write_incarnation(disk, directory.path, image, NODE, registration.incarnation_id)
            except OSError as error:
                logs.fail(directory, error)
        if not logs.online_dirs():
            raise DirectoryError(f"no log directory works: {found.offline}")
        self.replicas = ReplicaManager(
            logs=logs,
            node_id=NODE,
            config_for=self._config_for,
            ports=ports,
            requests=ControllerRequests(assign=self._asked.update),
        )
        is_missing_some = is_missing_some or len(logs.online_dirs()) < len(log_dirs)
        self.replicas.hosting.is_missing_some = is_missing_some
        found = FoundReplicas(
            found_replicas(logs), refused_replicas(logs, image), is_missing_some=is_missing_some
        )
        online = tuple(directory.directory_id for directory in logs.online_dirs())
        registered = register_broker(
            image, replace(registration, log_dirs=online, keeps_directories=True), found=found
        )
        self.broker_epoch = registered.response
        self.image = apply(image, registered.records)
        logs.set_aside()
        self.replicas.apply(self.image, None)
        unfenced = unfence_broker(self.image, broker_id=NODE, broker_epoch=self.broker_epoch)
        self._commit(*unfenced.records)

    def create(self, topic: str, partitions: int = 1) -> None:
        topic_id = topic.encode().ljust(16, b".")[:16]
        self._commit(
            make("TopicRecord", name=topic, topic_id=topic_id),
            *(
                make(
                    "PartitionRecord",
                    2,
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[NODE],
                    isr=[NODE],
                    leader=NODE,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY_UNASSIGNED],
                )
                for index in range(partitions)
            ),
        )
        result = assign_directories(
            self.image, broker_id=NODE, broker_epoch=self.broker_epoch, assignments=self._asked
        )
        self._asked.clear()
        self._commit(*result.records)

    def remove(self, topic: str) -> None:
        self._commit(make("RemoveTopicRecord", topic_id=self.image.topics_by_name[topic].id))

    def stop(self, *, clean: bool = False) -> None:
        """Close everything that was opened; without `clean` no file says so."""
        if hasattr(self, "logs"):
            self.logs.close(clean=clean, broker_epoch=self.broker_epoch)
        if self._directories is not None:
            self._directories.release()

    def _commit(self, *records: object) -> None:
        self.image = apply(self.image, records)  # type: ignore[arg-type]
        self.replicas.apply(self.image, None)

    def _config_for(self, topic: str) -> LogConfig:
        return self._configs.get(topic, LogConfig())
