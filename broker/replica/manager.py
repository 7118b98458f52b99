"""All partitions of this broker: made, changed and dropped as the metadata image says.

The one place that knows which topic id a name has here and which partitions are hosted. Everything
runs on the event loop; `apply` is a subscriber of the metadata node.

A new replica is served only when the metadata hold the log directory its files were made in:
afterwards files that are missing were lost, and the partition is offline, never begun anew.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker.replica.errors import (
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from broker.replica.partition import Partition
from broker.replica.topic_metrics import TopicMetrics
from broker.replica.wanted import describe
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.log_creation import NewLog
from local_log.log_dirs import LogManager
from local_log.partition_log import PartitionLog
from local_log.placement import place
from local_log.segment_files import EPOCH_CHECKPOINT
from metadata_topic.controller.directories import ReplicaId, can_assign
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import NO_LEADER, PartitionImage, TopicImage
from runtime.executors import Pool
from runtime.metrics import Registry

log = logging.getLogger(__name__)

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
DURABLE_TOPICS = frozenset({REMOTE_LOG_METADATA_TOPIC})

Assign = Callable[[Mapping[ReplicaId, bytes]], None]
"""Notes in the metadata which replica was made in which log directory; returns at once."""


class RaiseEpoch(Protocol):
    """Has the controller raise a leader epoch; see `LeaderEpochRequests.ask`."""

    def __call__(self, replica: ReplicaId, *, leader_epoch: int, used: int) -> str:
        """Return at once: why it is in vain, "" while it may still come about."""
        ...


class _Wanted(NamedTuple):
    """A replica that is to be hosted here."""

    topic: TopicImage
    number: int
    image: PartitionImage

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.number)


class ReplicaManager:
    """Hosted partitions by name and by topic id.

    Attributes:
        partitions: what is hosted here now; read only for others.
        topic_ids: id of each topic in the image, hosted here or not.
        topic_names: the other way round.
        offline: why a partition of this broker is not served, for people; a restart tries again.
        pending: partitions whose files are made and whose directory is not in the metadata yet.
        is_missing_some: whether a log directory was missing or did not work at the start.
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
        assign: Assign | None = None,
        has_tier: bool = False,
        raise_epoch: RaiseEpoch | None = None,
    ) -> None:
        """Host nothing yet; without `assign` new replicas are served as soon as they are made.

        With `has_tier` a remote tier judges the logs of tiered topics, see `Partition.is_sound`.
        Without `raise_epoch` a log of a later leader epoch than the metadata's waits for a person.
        """
        self.logs = logs
        self.node_id = node_id
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: dict[TopicPartition, str] = {}
        self.pending: dict[TopicPartition, bytes] = {}
        self.is_missing_some = False
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.on_change: list[Callable[[], None]] = []
        self.metrics = TopicMetrics(metrics)
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._applied: dict[str, TopicImage] = {}
        self._pool = pool
        self._config_for = config_for
        self._durable_topics = frozenset(durable_topics)
        self._assign, self._has_tier = assign, has_tier
        self._raise_epoch = raise_epoch
        self._waiting: list[tuple[frozenset[bytes], Future[None]]] = []

    # -- look-ups

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the partition of that name if it is hosted here."""
        return self.partitions.get(topic_partition)

    def by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        """Return the partition of that topic id if it is hosted here."""
        topic = self.topic_names.get(topic_id)
        return None if topic is None else self.partitions.get(TopicPartition(topic, partition))

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition of this broker is not served: its files, or their disk."""
        found = self.partitions.get(topic_partition)
        return topic_partition in self.offline if found is None else found.log.is_offline

    def require(self, topic: str, partition: int) -> Partition:
        """Return the hosted partition of that name.

        Raises:
            UnknownTopicOrPartition: it is not hosted here.
            KafkaStorageError: it is, but it is offline.
            NotLeaderOrFollower: it is being made.
        """
        found = self.partitions.get(TopicPartition(topic, partition))
        if found is None:
            tp = TopicPartition(topic, partition)
            if tp in self.offline:
                raise KafkaStorageError(f"{topic}-{partition} is offline: {self.offline[tp]}")
            if tp in self.pending:
                raise NotLeaderOrFollower(f"{topic}-{partition} is being made")
            raise UnknownTopicOrPartition(f"{topic}-{partition}")
        if found.log.is_offline:  # offsets too: nobody may build on what no disk holds
            raise KafkaStorageError(f"{topic}-{partition} is offline: its disk failed")
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
        self._answer_waiting()
        if changed:
            for listener in self.on_change:
                listener()

    def hosted(self, topic_ids: Collection[bytes]) -> Future[None] | None:
        """Wait until no replica of these topics is being made here any more.

        Returns:
            None when that is so already.
        """
        asked = frozenset(topic_ids)
        if asked.isdisjoint(self.pending.values()):
            return None
        future: Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        return future

    def _answer_waiting(self) -> None:
        if not self._waiting:
            return
        made = set(self.pending.values())
        done = [future for asked, future in self._waiting if asked.isdisjoint(made)]
        self._waiting = [entry for entry in self._waiting if not entry[0].isdisjoint(made)]
        for future in done:
            if not future.done():
                future.set_result(None)

    def assignment_failed(self, replicas: Collection[ReplicaId], error: KafkaError) -> None:
        """The metadata could not take note of new replicas: they are not served."""
        made = set(replicas)
        for tp, topic_id in list(self.pending.items()):
            if ReplicaId(topic_id, tp.partition) in made:
                del self.pending[tp]
                self._put_offline(tp, f"its log directory could not be noted: {error}")
        self._answer_waiting()

    def _drop_gone(self, image: MetadataImage, delta: MetadataDelta | None) -> bool:
        names = self._applied if delta is None else {t.name for t in delta.deleted_topics.values()}
        gone = []
        for name in list(names):
            old, new = self._applied.get(name), image.topics_by_name.get(name)
            if old is not None and (new is None or new.id != old.id):
                gone.append(old)
        # All at once: each deletion writes the checkpoints of a directory.
        self._drop([TopicPartition(old.name, index) for old in gone for index in old.partitions])
        for old in gone:
            self._forget_topic(old)
        return bool(gone)

    def _apply_topics(self, image: MetadataImage, delta: MetadataDelta | None) -> bool:
        if delta is None:
            topics = list(image.topics_by_name.values())
        else:
            found = (image.topics_by_id.get(topic_id) for topic_id in delta.changed_partitions)
            topics = [topic for topic in found if topic is not None]
        wanted: list[_Wanted] = []
        gone: list[TopicPartition] = []
        changed = False
        for topic in topics:
            old = self._applied.get(topic.name)
            if old is topic:
                continue
            changed = True
            self.topic_ids[topic.name], self.topic_names[topic.id] = topic.id, topic.name
            self._applied[topic.name] = topic
            for index, partition in topic.partitions.items():
                if old is not None and old.partitions.get(index) is partition:
                    continue
                if self.node_id in partition.replicas:
                    wanted.append(_Wanted(topic, index, partition))
                else:
                    gone.append(TopicPartition(topic.name, index))
        self._drop(gone)
        self._host(image, wanted)
        return changed

    # -- hosting

    def _host(self, image: MetadataImage, wanted: Sequence[_Wanted]) -> None:
        made = self._make(image, wanted)
        assignments: dict[ReplicaId, bytes] = {}
        for one in wanted:
            tp = one.topic_partition
            partition_log = made.get(tp) or self.logs.get(tp)
            if isinstance(partition_log, KafkaStorageError):
                self._put_offline(tp, str(partition_log))
                continue
            if partition_log is None:
                continue  # offline, and said so
            directory = self.logs.directory_of(tp)
            assert directory is not None
            noted = one.image.directory_of(self.node_id)
            if self._assign is not None and can_assign(image) and noted != directory.directory_id:
                if tp not in self.pending:
                    self.pending[tp] = one.topic.id
                    assignments[ReplicaId(one.topic.id, one.number)] = directory.directory_id
                continue
            self.pending.pop(tp, None)
            self._serve(tp, one, partition_log)
        if assignments and self._assign is not None:
            self._assign(assignments)

    def _make(
        self, image: MetadataImage, wanted: Sequence[_Wanted]
    ) -> dict[TopicPartition, PartitionLog | KafkaStorageError]:
        """Begin the logs that may be begun; say why others are missing."""
        working = {directory.directory_id for directory in self.logs.online_dirs()}
        is_missing_some = self.is_missing_some or not all(one.works for one in self.logs.dirs)
        new = []
        for one in wanted:
            tp = one.topic_partition
            if self.logs.get(tp) is not None:
                continue
            if tp in self.logs.refused:
                self._put_offline(tp, self.logs.refused[tp].reason)
                continue
            replica = describe(
                image,
                self.node_id,
                one.topic,
                one.number,
                one.image,
                is_missing_some=is_missing_some,
            )
            placement = place(replica, [], working)
            if placement.offline:
                self._put_offline(tp, placement.offline)
            else:
                new.append(NewLog(*tp, one.topic.id, self._config_for(tp.topic)))
        return self.logs.create_all(new) if new else {}

    def _put_offline(self, tp: TopicPartition, reason: str) -> None:
        if self.offline.get(tp) != reason:
            log.error("partition is offline: %s: %s", tp, reason)
            self.offline[tp] = reason

    def _serve(self, tp: TopicPartition, one: _Wanted, partition_log: PartitionLog) -> None:
        """Take the role that the metadata give; a failing disk is this partition's trouble only."""
        wanted = one.image
        leads = wanted.leader in (self.node_id, NO_LEADER)  # none yet: fenced until it has started
        written = partition_log.epochs.latest_epoch or 0
        if leads and written > wanted.leader_epoch:
            self._put_too_low(tp, one, written)
            return
        self.offline.pop(tp, None)
        partition = self.partitions.get(tp)
        if partition is None:
            partition = Partition(
                partition_log,
                topic_id=one.topic.id,
                node_id=self.node_id,
                pool=self._pool,
                counters=self.metrics.of(tp.topic),
                durable=tp.topic in self._durable_topics,
                has_tier=self._has_tier,
            )
            self.partitions[tp] = partition
            self._by_topic.setdefault(tp.topic, {})[tp.partition] = partition
        try:
            if wanted.leader == self.node_id:
                partition.become_leader(
                    leader_epoch=wanted.leader_epoch,
                    partition_epoch=wanted.partition_epoch,
                    replicas=wanted.replicas,
                    isr=wanted.isr,
                    unclean_epoch=wanted.unclean_epoch,
                )
            else:
                partition.become_follower(
                    leader_id=wanted.leader,
                    leader_epoch=wanted.leader_epoch,
                    partition_epoch=wanted.partition_epoch,
                    replicas=wanted.replicas,
                    isr=wanted.isr,
                )
        except KafkaStorageError as error:
            # Its directory is offline now, and the log answers so itself.
            log.error("partition cannot take its role: %s: %s", tp, error)  # noqa: TRY400

    def _put_too_low(self, tp: TopicPartition, one: _Wanted, written: int) -> None:
        """Nothing is appended before the metadata give a leader epoch above that of the log."""
        given, in_vain = one.image.leader_epoch, ""
        if self._raise_epoch is not None and one.image.leader == self.node_id:
            replica = ReplicaId(one.topic.id, one.number)
            in_vain = self._raise_epoch(replica, leader_epoch=given, used=written)
        step = in_vain or "the controller is asked for a higher one"
        self._put_offline(
            tp,
            f"its log was written under leader epoch {written}, and the metadata say {given}: they "
            f"are of an earlier time, or {EPOCH_CHECKPOINT} is damaged; {step}. Way out, where it "
            "stays so: put the newest copy of the metadata directory, or that file, back",
        )

    def epoch_refused(self, replica: ReplicaId) -> None:
        """The controller gives no higher leader epoch: whoever waits for one hears why."""
        topic = self._applied.get(self.topic_names.get(replica.topic_id, ""))
        tp = TopicPartition("" if topic is None else topic.name, replica.partition)
        partition_log = self.logs.get(tp)
        if topic is not None and tp in self.offline and partition_log is not None:
            self._serve(
                tp, _Wanted(topic, tp.partition, topic.partitions[tp.partition]), partition_log
            )

    def _forget_topic(self, topic: TopicImage) -> None:
        if self.topic_ids.get(topic.name) == topic.id:
            del self.topic_ids[topic.name]
        self.topic_names.pop(topic.id, None)
        del self._applied[topic.name]

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            self.offline.pop(tp, None)
            self.pending.pop(tp, None)
            partition = self.partitions.pop(tp, None)
            if partition is None:
                continue
            hosted = self._by_topic[tp.topic]
            del hosted[tp.partition]
            if not hosted:
                del self._by_topic[tp.topic]
                self.metrics.forget(tp.topic)
            partition.retire()
        if partitions:
            self.logs.delete(*partitions)

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
