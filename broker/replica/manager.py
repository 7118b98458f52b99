"""All partitions of this broker: made, changed and dropped according to the metadata image.

This module alone maps the names of topics to their ids here, and has the hosted partitions.
Everything runs on the event loop; `apply` is a subscriber of the metadata node. Changes of many
partitions go to `hosting` in slices, and are carried out there in slices.

A new replica is served only when the metadata hold the log directory of its files. Files that are
missing after that were lost: the partition is then offline, and never begun again.
"""

import logging
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from broker.replica.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from broker.replica.hosting import (
    NO_REQUESTS,
    ControllerRequests,
    Hosting,
    HostTarget,
    Listener,
    ReplicaEvents,
    RetiredReplica,
    sliced,
)
from broker.replica.partition import Partition
from broker.replica.validation import ValidationTally
from kafka_protocol.errors import UnknownTopicId
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.manager.log_dirs import LogManager
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import PartitionImage, TopicImage
from runtime.incidents import Incident
from runtime.log_context import LimitedLog
from runtime.ports import Ports
from runtime.work import Runner, Steps

log = logging.getLogger(__name__)

SLICE: Final = 100
"""Changed topics and partitions of an image in one iteration of the event loop."""


class ReplicaManager:
    """Hosted partitions by name and by topic id.

    Attributes:
        partitions: Hosted here now; read-only for others.
        topic_ids: Id of each topic in the image, hosted here or not.
        topic_names: The reverse map.
        offline: Why a partition of this broker is not served, for people; a restart tries again.
        pending: Partitions whose files are made and whose directory is not in the metadata yet.
        hosting: Makes and removes replicas.
        listeners: Called with changes of replicas, in the same iteration of the event loop.
        on_failure: Called after a defect; the replicas do not match the metadata from there on.
    """

    def __init__(
        self,
        *,
        logs: LogManager,
        node_id: int,
        config_for: Callable[[str], LogConfig],
        ports: Ports,
        requests: ControllerRequests = NO_REQUESTS,
        validations: ValidationTally | None = None,
    ) -> None:
        """Host nothing yet.

        With `validations` a remote tier validates the logs of tiered topics (`Partition.is_sound`).
        Without it such topics stay offline.
        """
        self.logs = logs
        self.node_id = node_id
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self._applied: dict[str, TopicImage] = {}
        self.hosting = hosting = Hosting(
            logs=logs,
            node_id=node_id,
            config_for=config_for,
            ports=ports,
            requests=requests,
            validations=validations,
        )
        self._leading = requests.leading
        self.on_failure: Callable[[Exception], object] = lambda _error: None
        self._images: deque[tuple[MetadataImage, MetadataDelta | None]] = deque()
        self._runner = Runner(self._apply_images, ports.scheduler, failed=self._failed)
        self.partitions, self.offline = hosting.partitions, hosting.offline
        self.pending, self.metrics = hosting.pending, hosting.metrics
        self.listeners: list[Listener] = hosting.listeners
        self._refused_fetches = LimitedLog(ports.clock)

    def fetch_refused(self, broker_id: int, reason: str) -> None:
        """Log, at most once a minute for each broker, that its Fetch was refused."""
        self._refused_fetches.warning(log, f"a Fetch is refused: {reason}", broker_id)

    # -- look-ups

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the partition of that name if it is hosted here."""
        return self.partitions.get(topic_partition)

    def by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        """Return the partition of that topic id if it is hosted here."""
        topic = self.topic_names.get(topic_id)
        return None if topic is None else self.partitions.get(TopicPartition(topic, partition))

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """True if a partition of this broker is not served, because of its files or its disk."""
        found = self.partitions.get(topic_partition)
        return topic_partition in self.offline if found is None else found.log.is_offline

    def require(self, topic: str, partition: int) -> Partition:
        """Return the hosted partition of that name.

        Raises:
            UnknownTopicOrPartition: There is no such partition.
            KafkaStorageError: It is offline.
            NotLeaderOrFollower: It is being made, or has its replicas on other brokers.
        """
        found = self.partitions.get(TopicPartition(topic, partition))
        if found is None:
            tp = TopicPartition(topic, partition)
            if tp in self.offline:
                raise KafkaStorageError(f"{topic}-{partition} is offline: {self.offline[tp]}")
            if self.hosting.is_being_made(tp):
                raise NotLeaderOrFollower(f"{topic}-{partition} is being made")
            if self._image_of(tp) is not None:
                raise NotLeaderOrFollower(f"{topic}-{partition} has no replica here")
            raise UnknownTopicOrPartition(f"{topic}-{partition}")
        if found.log.is_offline:  # no answer may rest on records that no disk holds
            raise KafkaStorageError(f"{topic}-{partition} is offline: its disk failed")
        return found

    def require_id(self, topic_id: bytes, partition: int) -> Partition:
        """Return the hosted partition of that topic id.

        Raises:
            UnknownTopicId: No topic has this id.
            KafkaError: From `require`.
        """
        topic = self.topic_names.get(topic_id)
        if topic is None:
            raise UnknownTopicId("no topic has this id")
        return self.require(topic, partition)

    def leader(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """The leader's broker id and the leader epoch; None: there is no such partition."""
        found = self.partitions.get(topic_partition) or self._image_of(topic_partition)
        if found is None:
            return None
        leader_id = found.leader_id if isinstance(found, Partition) else found.leader
        return leader_id, found.leader_epoch

    def _image_of(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self._applied.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def settled(self, topics: Sequence[str]) -> Future[None] | None:
        """Wait for topics by name (`Hosting.settled`); names that the image lacks are left out.

        Returns:
            None when no replica of them is being made, changed or removed.
        """
        found = (self.topic_ids.get(name) for name in topics)
        return self.hosting.settled([topic_id for topic_id in found if topic_id is not None])

    # -- the image

    def apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Begin to make the hosted partitions match `image`, see `Hosting.caught_up`.

        Removed replicas are not served on return; of a large change only some iterations later.

        Args:
            image: Committed metadata.
            delta: Changes since the last call, so that a change costs what it touches. None at the
                start: everything is compared, by identity (images share what is the same).
        """
        self._images.append((image, delta))
        self.hosting.is_being_notified = True
        self._runner.start()

    def _apply_images(self) -> Steps[None]:
        while self._images:
            image, delta = self._images.popleft()
            yield from self._apply_one(image, delta)
        self.hosting.is_notified()

    def _apply_one(self, image: MetadataImage, delta: MetadataDelta | None) -> Steps[None]:
        self.hosting.take(image)
        self._configure(delta)
        for count, some in enumerate(sliced(self._compared(image, delta), SLICE)):
            if count:
                yield
            retired = self.hosting.drop(one for one in some if isinstance(one, RetiredReplica))
            self.hosting.want(one for one in some if isinstance(one, HostTarget))
            topics_deleted = tuple(one.id for one in some if isinstance(one, TopicImage))
            self.hosting.tell(ReplicaEvents(gone=tuple(retired), topics_deleted=topics_deleted))
        if self._leading is not None and (delta is None or delta.changed_brokers):
            self._leading.review_soon()

    def _failed(self, error: Exception) -> None:
        log.error(
            Incident.DEFECT.line(what="replicas are not what the metadata say"), exc_info=error
        )
        self._images.clear()
        self.hosting.is_notified()
        self.on_failure(error)

    def _compared(
        self, image: MetadataImage, delta: MetadataDelta | None
    ) -> Iterator[HostTarget | RetiredReplica | TopicImage | None]:
        """Replicas wanted here, replicas to remove, and removed topics after their partitions.

        None for a topic or a partition without a change.
        """
        for old in self._topics_deleted(image, delta):
            if old is not None:
                yield from (
                    RetiredReplica(TopicPartition(old.name, index), old.id)
                    for index in old.partitions
                )
                self._forget_topic(old)
            yield old
        for topic in self._topics_changed(image, delta):
            before = self._applied.get(topic.name)
            if before is topic:
                yield None
                continue
            self.topic_ids[topic.name], self.topic_names[topic.id] = topic.id, topic.name
            self._applied[topic.name] = topic
            indexes = topic.partitions if delta is None else delta.changed_partitions[topic.id]
            for index in sorted(indexes):
                partition = topic.partitions.get(index)
                known = None if before is None else before.partitions.get(index)
                if partition is None or partition is known:
                    yield None
                elif self.node_id in partition.replicas:
                    yield HostTarget(topic, index, partition)
                else:
                    yield RetiredReplica(TopicPartition(topic.name, index), topic.id)

    def _topics_deleted(
        self, image: MetadataImage, delta: MetadataDelta | None
    ) -> Iterable[TopicImage | None]:
        names = self._applied if delta is None else {t.name for t in delta.deleted_topics.values()}
        for name in list(names):
            old, new = self._applied.get(name), image.topics_by_name.get(name)
            is_gone = old is not None and (new is None or new.id != old.id)
            yield old if is_gone else None

    @staticmethod
    def _topics_changed(image: MetadataImage, delta: MetadataDelta | None) -> list[TopicImage]:
        if delta is None:
            return list(image.topics_by_name.values())
        found = (image.topics_by_id.get(topic_id) for topic_id in delta.changed_partitions)
        return [topic for topic in found if topic is not None]

    def _forget_topic(self, topic: TopicImage) -> None:
        if self.topic_ids.get(topic.name) == topic.id:
            del self.topic_ids[topic.name]
        self.topic_names.pop(topic.id, None)
        del self._applied[topic.name]

    def _configure(self, delta: MetadataDelta | None) -> None:
        """Hand changed settings to the logs; a broker's settings may be the defaults of all."""
        if delta is None or not delta.changed_configs:
            return
        names = {name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC}
        of_all = len(names) < len(delta.changed_configs)
        self.hosting.bar(names)
        self.hosting.configure(None if of_all else names)

    async def stop(self) -> None:
        """Make no more replicas; those that are to go are still removed."""
        await self.hosting.stop()
        await self._runner.stop()

    def serve_again(self, topic_partition: TopicPartition) -> None:
        """Give a replica whose log was replaced its role by the present metadata."""
        topic, number = self._applied.get(topic_partition.topic), topic_partition.partition
        partition = None if topic is None else topic.partitions.get(number)
        if topic is not None and partition is not None and self.node_id in partition.replicas:
            self.hosting.serve_again(HostTarget(topic, number, partition))

    # -- answers of the controller

    def epoch_refused(self, replica: ReplicaId) -> None:
        """Note why the controller gives no higher leader epoch, in the offline reason."""
        topic = self._applied.get(self.topic_names.get(replica.topic_id, ""))
        if topic is not None:
            number = replica.partition
            self.hosting.epoch_refused(HostTarget(topic, number, topic.partitions[number]))
