"""All partitions of this broker: made, changed and dropped as the metadata image says.

The one place that knows which topic id a name has here and which partitions are hosted. Everything
runs on the event loop; `apply` is a subscriber of the metadata node.
"""

import logging
from collections.abc import Callable, Iterable

from broker.replica.errors import UnknownTopicId, UnknownTopicOrPartition
from broker.replica.partition import Partition
from broker.replica.topic_metrics import TopicMetrics
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.log_dirs import LogManager
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import PartitionImage, TopicImage
from runtime.executors import Pool
from runtime.metrics import Registry

log = logging.getLogger(__name__)

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
DURABLE_TOPICS = frozenset({REMOTE_LOG_METADATA_TOPIC})


class ReplicaManager:
    """Hosted partitions by name and by topic id.

    Attributes:
        partitions: what is hosted here now; read only for others.
        topic_ids: id of each topic in the image, hosted here or not.
        topic_names: the other way round.
        offline: partitions of this broker whose log directory does not work, so that they could
            not be opened; a restart tries again.
        on_change: called after each `apply` that changed roles, epochs, configs or the set.
    """

    def __init__(
        self,
        *,
        logs: LogManager,
        node_id: int,
        pool: Pool,
        config_for: Callable[[str], LogConfig],
        metrics: Registry,
        durable_topics: Iterable[str] = DURABLE_TOPICS,
    ) -> None:
        self.logs = logs
        self.node_id = node_id
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: set[TopicPartition] = set()
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.on_change: list[Callable[[], None]] = []
        self.metrics = TopicMetrics(metrics)
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._applied: dict[str, TopicImage] = {}
        self._pool = pool
        self._config_for = config_for
        self._durable_topics = frozenset(durable_topics)

    # -- look-ups

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the partition of that name if it is hosted here."""
        return self.partitions.get(topic_partition)

    def by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        """Return the partition of that topic id if it is hosted here."""
        topic = self.topic_names.get(topic_id)
        return None if topic is None else self.partitions.get(TopicPartition(topic, partition))

    def require(self, topic: str, partition: int) -> Partition:
        """Return the hosted partition of that name.

        Raises:
            UnknownTopicOrPartition: it is not hosted here.
            KafkaStorageError: it is, but its log directory is offline.
        """
        found = self.partitions.get(TopicPartition(topic, partition))
        if found is None:
            if (topic, partition) in self.offline:
                raise KafkaStorageError(f"the log directory of {topic}-{partition} is offline")
            raise UnknownTopicOrPartition(f"{topic}-{partition}")
        return found

    def require_id(self, topic_id: bytes, partition: int) -> Partition:
        """Return the hosted partition of that topic id.

        Raises:
            UnknownTopicId: no topic has this id.
            UnknownTopicOrPartition: the topic exists, but not that partition here.
        """
        topic = self.topic_names.get(topic_id)
        if topic is None:
            raise UnknownTopicId("no topic has this id")
        return self.require(topic, partition)

    # -- the image

    def apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Make the hosted partitions what `image` says.

        Args:
            image: committed metadata.
            delta: what changed since the last call, so that a change costs what it touches; None
                at start (then everything is compared, by identity: images share what is the same).
        """
        changed = self._drop_gone(image, delta)
        changed |= self._apply_topics(image, delta)
        changed |= self._apply_configs(delta)
        if changed:
            for listener in self.on_change:
                listener()

    def _drop_gone(self, image: MetadataImage, delta: MetadataDelta | None) -> bool:
        names = self._applied if delta is None else {t.name for t in delta.deleted_topics.values()}
        changed = False
        for name in list(names):
            old, new = self._applied.get(name), image.topics_by_name.get(name)
            if old is not None and (new is None or new.id != old.id):
                self._drop_topic(old)
                changed = True
        return changed

    def _apply_topics(self, image: MetadataImage, delta: MetadataDelta | None) -> bool:
        if delta is None:
            topics = list(image.topics_by_name.values())
        else:
            found = (image.topics_by_id.get(topic_id) for topic_id in delta.changed_partitions)
            topics = [topic for topic in found if topic is not None]
        changed = False
        for topic in topics:
            old_topic = self._applied.get(topic.name)
            if old_topic is topic:
                continue
            self.topic_ids[topic.name], self.topic_names[topic.id] = topic.id, topic.name
            self._apply_topic(topic, old_topic, delta_is_known=delta is not None)
            self._applied[topic.name] = topic
            changed = True
        return changed

    def _apply_topic(
        self, topic: TopicImage, old: TopicImage | None, *, delta_is_known: bool
    ) -> None:
        for index, wanted in topic.partitions.items():
            if old is not None and old.partitions.get(index) is wanted:
                continue
            if self.node_id in wanted.replicas:
                is_new = delta_is_known and (old is None or index not in old.partitions)
                self._host(topic, index, wanted, is_new=is_new)
            else:
                self._drop(TopicPartition(topic.name, index))

    def _host(self, topic: TopicImage, index: int, wanted: PartitionImage, *, is_new: bool) -> None:
        topic_partition = TopicPartition(topic.name, index)
        partition = self.partitions.get(topic_partition)
        if partition is None:
            try:
                partition = self._open(topic_partition, topic.id, is_new=is_new)
            except KafkaStorageError as error:
                log.error("partition is offline: %s: %s", topic_partition, error)  # noqa: TRY400 - no mistake of ours
                self.offline.add(topic_partition)
                return
            self.offline.discard(topic_partition)
        if wanted.leader == self.node_id:
            partition.become_leader(
                leader_epoch=wanted.leader_epoch,
                partition_epoch=wanted.partition_epoch,
                replicas=wanted.replicas,
                isr=wanted.isr,
            )
        else:
            partition.become_follower(
                leader_id=wanted.leader,
                leader_epoch=wanted.leader_epoch,
                partition_epoch=wanted.partition_epoch,
                replicas=wanted.replicas,
                isr=wanted.isr,
            )

    def _open(self, topic_partition: TopicPartition, topic_id: bytes, *, is_new: bool) -> Partition:
        partition_log = self.logs.get(topic_partition)
        if partition_log is not None and partition_log.topic_id != topic_id:
            # The name was deleted and made again while this broker was away.
            log.warning("stray partition of a deleted topic is dropped: %s", topic_partition)
            self.logs.delete(topic_partition)
            partition_log = None
        if partition_log is None:
            config = self._config_for(topic_partition.topic)
            partition_log = self.logs.create(
                topic_partition.topic, topic_partition.partition, topic_id, config, is_new=is_new
            )
        partition = Partition(
            partition_log,
            topic_id=topic_id,
            node_id=self.node_id,
            pool=self._pool,
            counters=self.metrics.of(topic_partition.topic),
            durable=topic_partition.topic in self._durable_topics,
        )
        self.partitions[topic_partition] = partition
        self._by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = partition
        return partition

    def _drop_topic(self, topic: TopicImage) -> None:
        for index in topic.partitions:
            self._drop(TopicPartition(topic.name, index))
        if self.topic_ids.get(topic.name) == topic.id:
            del self.topic_ids[topic.name]
        self.topic_names.pop(topic.id, None)
        del self._applied[topic.name]

    def _drop(self, topic_partition: TopicPartition) -> None:
        partition = self.partitions.pop(topic_partition, None)
        if partition is None:
            self.offline.discard(topic_partition)
            return
        hosted = self._by_topic[topic_partition.topic]
        del hosted[topic_partition.partition]
        if not hosted:
            del self._by_topic[topic_partition.topic]
            self.metrics.forget(topic_partition.topic)
        partition.retire()
        self.logs.delete(topic_partition)

    def _apply_configs(self, delta: MetadataDelta | None) -> bool:
        """Hand changed settings to the logs; a broker's change may change the defaults of all."""
        if delta is None or not delta.changed_configs:
            return False
        names = {name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC}
        if len(names) < len(delta.changed_configs):
            names = set(self._by_topic)
        changed = False
        for name in names & self._by_topic.keys():
            config = self._config_for(name)
            for partition in self._by_topic[name].values():
                if partition.log.config != config:
                    partition.log.set_config(config)
                    changed = True
        return changed
