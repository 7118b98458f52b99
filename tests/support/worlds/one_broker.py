"""Metadata and log directories of one broker, and a replica manager for each of its lives."""

import errno
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.network.registry import RequestContext
from broker.replica.hosting import ControllerRequests
from broker.replica.manager import ReplicaManager
from broker.replica.target_replica import found_replicas, refused_replicas, target_replica
from broker.replica.validation import ValidationTally
from broker.topics.cluster import ClusterView
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
)
from kafka_protocol.wire.codec import message
from local_log.config import LogConfig
from local_log.manager.log_dirs import LogManager
from metadata_topic.controller.brokers import register_broker, unfence_broker
from metadata_topic.controller.directories import (
    FoundReplicas,
    ReplicaId,
    assign_directories,
)
from metadata_topic.image.image import METADATA_VERSION, is_tiered
from metadata_topic.image.model import DIRECTORY_UNASSIGNED, Provenance
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.image.replay import replay_all
from runtime.executors import Pool
from tests.support.samples.metadata import apply, cluster_of, registration_of
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.worlds.data_plane import NODE, batch

NOW_MS = 1_700_000_000_000
DIRECTORIES = (b"a" * 16, b"b" * 16)


class OneBroker:
    """Metadata, log directories, and a replica manager of each life.

    Attributes:
        asked: assignments that the manager asked for and nobody has committed yet.
        settings: of all topics.
    """

    def __init__(
        self, root: Path, *, keeps: bool = True, version: int = 30, changes: Pool | None = None
    ) -> None:
        self.paths = [root / "a", root / "b"]
        for path, directory_id in zip(self.paths, DIRECTORIES, strict=True):
            path.mkdir()
            meta = MetaProperties("c" * 22, NODE, directory_id)
            (path / META_PROPERTIES).write_bytes(dump_meta_properties(meta))
        self.disk = FaultyDisk()
        self.ports = simulated(clock=ManualClock(NOW_MS), disk=self.disk, changes=changes)
        self.keeps = keeps
        self.settings: dict[str, Any] = {}
        self.life = 0
        self.image = cluster_of(features={METADATA_VERSION: version})
        self.start()

    def start(
        self,
        *,
        missing: Iterable[int] = (),
        failing: Iterable[int] = (),
        has_tier: bool = True,
    ) -> None:
        """As the broker does: load, register with what was found, put aside, host.

        Directories of `failing` fail between loading and registering.
        """
        self.life += 1
        self.asked: dict[ReplicaId, bytes] = {}
        self.logs = LogManager(self.paths, self.config_for, self.ports)
        for index in missing:
            self.logs.put_offline(self.paths[index], OSError(errno.EIO, "away"))
        is_missing_some = bool(list(missing))
        image = self.image
        self.logs.load(
            lambda tp: target_replica(
                image, NODE, tp, is_missing_some=is_missing_some, has_tier=has_tier
            )
        )
        self.replicas = ReplicaManager(
            logs=self.logs,
            node_id=NODE,
            config_for=self.config_for,
            ports=self.ports,
            requests=ControllerRequests(assign=self._asked),
            validations=ValidationTally(self.ports.clock) if has_tier else None,
        )
        self.replicas.hosting.is_missing_some = is_missing_some
        for index in failing:
            self.logs.fail(self.logs.dirs[index], OSError(errno.EIO, "away"))
        online = self.logs.online_dirs()
        registration = replace(
            registration_of(NODE, life=self.life),
            log_dirs=tuple(directory.directory_id for directory in online),
            keeps_directories=self.keeps,
        )
        found = FoundReplicas(
            found_replicas(self.logs),
            refused_replicas(self.logs, image),
            is_missing_some=is_missing_some,
        )
        registered = register_broker(image, registration, found=found)
        self.image = apply(image, registered.records)
        self.logs.set_aside()
        self.replicas.apply(self.image, None)
        epoch = registered.response
        unfenced = unfence_broker(self.image, broker_id=NODE, broker_epoch=epoch)
        self.commit(*unfenced.records)

    def config_for(self, topic: str) -> LogConfig:
        return LogConfig(
            remote_storage_enable=is_tiered(self.image.topic_config(topic)), **self.settings
        )

    def _asked(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        self.asked |= assignments

    def commit(self, *records: MetadataRecord) -> None:
        at = self.image.provenance
        provenance = Provenance(at.offset + len(records), at.epoch, at.timestamp_ms)
        self.image, delta = replay_all(self.image, records, provenance)
        self.replicas.apply(self.image, delta)

    def commit_assignments(self) -> None:
        asked, self.asked = self.asked, {}
        epoch = self.image.brokers[NODE].epoch
        result = assign_directories(
            self.image, broker_id=NODE, broker_epoch=epoch, assignments=asked
        )
        self.commit(*result.records)

    def create(self, name: str, partitions: int = 1, *, id: bytes | None = None) -> bytes:
        topic_id = id or (name.encode() * 16)[:16]
        self.commit(
            make("TopicRecord", name=name, topic_id=topic_id),
            *(
                make(
                    "PartitionRecord",
                    0 if self.image.metadata_version < 17 else 2,
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[NODE],
                    isr=[NODE],
                    leader=NODE,
                    leader_epoch=0,
                    partition_epoch=0,
                    **self._unassigned(),
                )
                for index in range(partitions)
            ),
        )
        return topic_id

    def _unassigned(self) -> dict[str, list[bytes]]:
        return {} if self.image.metadata_version < 17 else {"directories": [DIRECTORY_UNASSIGNED]}

    def served(self, name: str, partitions: int = 1, records: int = 3) -> None:
        """A topic with records in each partition."""
        self.create(name, partitions)
        self.commit_assignments()
        for index in range(partitions):
            for _ in range(records):
                self.append(name, index)

    def append(self, name: str, index: int = 0) -> None:
        self.replicas.require(name, index).append(batch(b"v"), now_ms=NOW_MS)

    def ends(self, name: str, partitions: int) -> list[int]:
        return [self.replicas.require(name, i).log.log_end_offset for i in range(partitions)]

    def offline_replicas(self, name: str) -> list[list[int]]:
        """What DescribeTopicPartitions says of each partition."""
        view = ClusterView(NODE, "c" * 22, lambda: self.image)
        handler = DescribeTopicPartitionsHandler(view, 100, self.replicas.is_offline)
        request = message("DescribeTopicPartitionsRequest").cls
        answer = handler.handle(
            RequestContext(handler.api_key, 0, 1, "test", "PLAINTEXT", ("127.0.0.1", 1), 0),
            request(topics=[request.Topics(name=name)]),
        )
        (topic,) = answer.topics
        return [partition.offline_replicas for partition in topic.partitions]

    def where(self, name: str, index: int = 0) -> int:
        """Number of the directory that holds a partition's files."""
        found = [n for n, path in enumerate(self.paths) if (path / f"{name}-{index}").exists()]
        assert len(found) == 1
        return found[0]

    def change_leader_epoch(self, topic_id: bytes, *indexes: int) -> None:
        self.commit(
            *(
                make("PartitionChangeRecord", 0, partition_id=n, topic_id=topic_id, leader=NODE)
                for n in indexes
            )
        )
