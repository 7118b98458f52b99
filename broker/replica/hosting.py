"""Makes the replicas of this broker match the metadata, without holding the event loop.

The metadata give the wanted state at once. Directories are made, renamed and fsynced on pool
threads, a batch at a time, and roles are taken in slices. Changes of one topic keep their order: a
name is free for another topic only when the directory that had it is renamed away. A replica that
is dropped is not served from that moment on.

A kill leaves three things, and the next start handles each. Directories that are no longer wanted
are put aside. Empty directories that the metadata do not have are opened. A leader epoch without
records is cut off the epoch chain.
"""

import asyncio
import logging
from asyncio import Future
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.replica.followers import Leader
from broker.replica.isr import ReplicaChange
from broker.replica.leading import Leading
from broker.replica.partition import Partition
from broker.replica.reconfiguration import Reconfiguration
from broker.replica.target_replica import describe, why_barred
from broker.replica.topic_metrics import TopicMetrics
from broker.replica.validation import ValidationTally
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.file_names import EPOCH_CHECKPOINT
from local_log.log.partition_log import PartitionLog
from local_log.manager.creation import NewLog
from local_log.manager.deletion import Removal
from local_log.manager.log_dirs import LogManager
from local_log.manager.placement import place
from metadata_topic.controller.directories import ReplicaId, can_assign
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, RECOVERING, PartitionImage, TopicImage
from runtime.executors import side_by_side
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.work import OnPool, Runner, Until, Work, logged

log = logging.getLogger(__name__)

Assign = Callable[[Mapping[ReplicaId, bytes]], None]
"""Has the metadata note which replica was made in which log directory; returns at once."""

BATCH: Final = 250
"""Partitions whose directories are made or taken away together."""
SLICE: Final = 50
"""Partitions in one iteration of the event loop."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEvents:
    """The changes of one iteration of the event loop.

    Attributes:
        led: Led here from now on, or still led with another epoch, replicas or in-sync replicas.
        followed: Led elsewhere, or nowhere.
        gone: Not hosted here any more; retired.
        configured: Their topic's settings have changed.
        topics_deleted: Ids of topics that the metadata hold no more, hosted here or not.
    """

    led: tuple[Partition, ...] = ()
    followed: tuple[Partition, ...] = ()
    gone: tuple[Partition, ...] = ()
    configured: tuple[Partition, ...] = ()
    topics_deleted: tuple[bytes, ...] = ()


Listener = Callable[[ReplicaEvents], None]


class RaiseEpoch(Protocol):
    """Has the controller raise a leader epoch; see `LeaderEpochRequests.ask`."""

    def __call__(self, replica: ReplicaId, *, leader_epoch: int, used: int) -> str:
        """Return at once: why the request is in vain, "" while it may still succeed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequests:
    """Requests of replicas to the controller; None where there is no way to it.

    Attributes:
        assign: Without it new replicas are served as soon as they are made.
        raise_epoch: Without it a log of a later leader epoch than that of the metadata stays
            offline until an operator acts.
        leading: Without it no partition is led that has followers.
    """

    assign: Assign | None = None
    raise_epoch: RaiseEpoch | None = None
    leading: Leading[Leader] | None = None


NO_REQUESTS = ControllerRequests()


class OfPartition(Protocol):
    """A change of one partition."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""
        ...


C = TypeVar("C", bound=OfPartition)


class ChangeQueue(Generic[C]):
    """Changes that wait; those of one topic keep their order.

    A topic of one partition would wait for thousands of partitions that were created just before
    it. So the second half of each batch goes to the newest topics. The first half goes to the
    oldest ones, so that each of them gets its turn.
    """

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[C]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, change: C) -> None:
        """Add one behind the others of its topic."""
        self._by_topic.setdefault(change.topic_partition.topic, deque()).append(change)
        self._size += 1

    def take(self, most: int) -> list[C]:
        """Take out at most `most` changes."""
        taken: list[C] = []
        while self._by_topic and len(taken) < most:
            is_first_half = len(taken) < (most + 1) // 2
            name = next(iter(self._by_topic) if is_first_half else reversed(self._by_topic))
            waiting = self._by_topic[name]
            until = (most + 1) // 2 if is_first_half else most
            while waiting and len(taken) < until:
                taken.append(waiting.popleft())
            if not waiting:
                del self._by_topic[name]
        self._size -= len(taken)
        return taken


@dataclass(frozen=True, slots=True, eq=False)
class HostTarget:
    """A replica that is to be hosted here."""

    topic: TopicImage
    number: int
    partition: PartitionImage

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""
        return TopicPartition(self.topic.name, self.number)

    @property
    def topic_id(self) -> bytes:
        """Id of the topic."""
        return self.topic.id


@dataclass(frozen=True, slots=True, eq=False)
class RetiredReplica:
    """A replica that is not to be hosted here any more."""

    topic_partition: TopicPartition
    topic_id: bytes


class Pending(NamedTuple):
    """A log directory that the metadata are to note for a replica."""

    topic_id: bytes
    directory_id: bytes


Change = HostTarget | RetiredReplica
Logs = dict[TopicPartition, PartitionLog | KafkaStorageError]


class Hosting:
    """The replicas that are hosted here.

    Attributes:
        partitions: Served here now.
        offline: Why a replica of this broker is not served, for people; a restart tries again.
        pending: Replicas whose files are made and whose directory is not in the metadata yet, with
            the directory that was last asked for.
        is_missing_some: A log directory was missing or did not work at the start.
        is_being_notified: More changes come before `is_notified`.
        listeners: Called with each `ReplicaEvents`.
        metrics: Of the topics that are hosted.
    """

    def __init__(
        self,
        *,
        logs: LogManager,
        node_id: int,
        config_for: Callable[[str], LogConfig],
        ports: Ports,
        requests: ControllerRequests,
        validations: ValidationTally | None,
    ) -> None:
        """Host nothing yet; without `validations` (no tier) no tiered topic is served."""
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: dict[TopicPartition, str] = {}
        self.pending: dict[TopicPartition, Pending] = {}
        self.is_missing_some = self.is_being_notified = False
        self.listeners: list[Listener] = []
        self.metrics = TopicMetrics(ports.metrics)
        self._logs, self._node_id, self._config_for = logs, node_id, config_for
        self._requests, self._validations = requests, validations
        self._commit = ports.executors.commit
        self._image = MetadataImage()
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._queue: ChangeQueue[Change] = ChangeQueue()
        self._newest: dict[TopicPartition, Change] = {}  # of those in the queue or being made
        self._unsettled: Counter[bytes] = Counter()
        self._waiting: list[tuple[frozenset[bytes], Future[None]]] = []
        self._until_idle: list[Future[None]] = []
        self._is_stopping = False
        self._changes = ports.executors.changes
        self._runner = Runner(self._work, ports.scheduler, failed=logged("hosting"))
        self._settings = Reconfiguration(
            config_for=config_for,
            partitions_of=lambda name: self._by_topic.get(name, {}).values(),
            tell=lambda changed: self.tell(ReplicaEvents(configured=changed)),
            ports=ports,
        )

    # -- changes

    def take(self, image: MetadataImage) -> None:
        """Take the image from which the next changes come."""
        self._image = image

    def want(self, wanted: Iterable[HostTarget]) -> None:
        """Host these from now on; earlier changes of the same replicas are outdated."""
        for one in wanted:
            self._put(one)
            partition = self.partitions.get(one.topic_partition)
            if partition is not None and one.partition.leader != self._node_id:
                partition.pause()  # nothing more is acknowledged under an epoch that is over

    def serve_again(self, wanted: HostTarget) -> None:
        """Host it as before, with a log that replaced the former one."""
        self.want([wanted])
        if not self.is_being_notified:
            self.is_notified()

    def drop(self, gone: Iterable[RetiredReplica]) -> list[Partition]:
        """Stop serving these at once; their directories are removed later.

        Returns:
            The partitions that were served.
        """
        retired = []
        for one in gone:
            tp = one.topic_partition
            self.offline.pop(tp, None)
            self._end_pending(tp)
            partition = self._retire(tp)
            if partition is not None:
                retired.append(partition)
            if tp in self._newest or self._logs.get(tp) is not None or tp in self._logs.refused:
                self._put(one)
        return retired

    def _retire(self, tp: TopicPartition) -> Partition | None:
        """Stop serving it, if it is served."""
        partition = self.partitions.pop(tp, None)
        if partition is not None:
            hosted = self._by_topic[tp.topic]
            del hosted[tp.partition]
            if not hosted:
                del self._by_topic[tp.topic]
                self.metrics.forget(tp.topic)
            partition.retire()
        return partition

    def _put(self, change: Change) -> None:
        self._queue.put(change)
        self._newest[change.topic_partition] = change
        self._unsettled[change.topic_id] += 1

    def is_notified(self) -> None:
        """Begin to carry out the changes: all of them have been given."""
        self.is_being_notified = False
        self._answer_waiting()
        self._runner.start()

    def bar(self, names: Collection[str]) -> None:
        """Stop serving those of these topics at once that need a tier which is not here."""
        if self._validations is not None:
            return
        barred: list[Partition] = []
        for name in self._by_topic.keys() & names:
            if not (reason := self._why_barred(name)):
                continue
            hosted, config = list(self._by_topic[name].values()), self._config_for(name)
            log.error(Incident.TOPIC_OFFLINE.line(topic=name, count=len(hosted), reason=reason))
            for partition in hosted:
                # Its log stays open: with the settings of a tiered topic retention deletes nothing.
                partition.set_config(config)
                self._retire(partition.topic_partition)
                self.offline[partition.topic_partition] = reason
            barred += hosted
        self.tell(ReplicaEvents(gone=tuple(barred)))

    def configure(self, names: Collection[str] | None) -> None:
        """Hand changed settings to the logs of these topics, None: of all; in slices, if many."""
        self._settings.of(self._by_topic if names is None else names & self._by_topic.keys())

    def is_being_made(self, tp: TopicPartition) -> bool:
        """True if a replica is wanted that is not served yet."""
        return tp in self.pending or isinstance(self._newest.get(tp), HostTarget)

    def is_done_with(self, tp: TopicPartition) -> bool:
        """True if no change waits or is carried out for it: its role stays until the next one."""
        return tp not in self._newest

    def leads_on(self, partition: Partition, leader_epoch: int) -> bool:
        """True if no change ends this broker's leadership of it under this epoch."""
        change = self._newest.get(partition.topic_partition)
        if isinstance(change, HostTarget):
            said = change.partition
            return (said.leader, said.leader_epoch) == (self._node_id, leader_epoch)
        is_hosted = self.partitions.get(partition.topic_partition) is partition
        return change is None and is_hosted and partition.leader_epoch == leader_epoch

    @property
    def backlog(self) -> int:
        """How many changes wait, or are being carried out."""
        return len(self._newest)

    # -- waiting

    def settled(self, topic_ids: Collection[bytes]) -> Future[None] | None:
        """Wait until no replica of these topics is being made, changed or removed.

        Returns:
            None when that is so already.
        """
        asked = frozenset(topic_ids)
        if not self.is_being_notified and self._unsettled.keys().isdisjoint(asked):
            return None
        future: Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        return future

    async def caught_up(self) -> None:
        """Wait until all changes are carried out, except for directories the controller notes."""
        while self.is_being_notified or self._queue or self._newest:
            future: Future[None] = asyncio.get_running_loop().create_future()
            self._until_idle.append(future)
            await future

    async def stop(self) -> None:
        """Make no more replicas; those that are to go are still removed."""
        self._is_stopping = True
        await self.caught_up()
        await self._runner.stop()
        await self._settings.stop()

    def _settle(self, topic_id: bytes) -> None:
        self._unsettled[topic_id] -= 1
        if not self._unsettled[topic_id]:
            del self._unsettled[topic_id]

    def _end_pending(self, tp: TopicPartition) -> None:
        pending = self.pending.pop(tp, None)
        if pending is not None:
            self._settle(pending.topic_id)

    def _answer_waiting(self) -> None:
        if self.is_being_notified:
            return
        waiting, self._waiting = self._waiting, []
        for asked, future in waiting:
            if not self._unsettled.keys().isdisjoint(asked):
                self._waiting.append((asked, future))
            elif not future.done():
                future.set_result(None)

    # -- carrying out

    def _work(self) -> Work[None]:
        while self._queue:
            batch = self._queue.take(BATCH)
            # An ISR goes with the minimum that it was made for: settings come first.
            yield Until(self._settings.when_done)
            try:
                yield from self._until_here(batch)
                yield from self._remove([one for one in batch if isinstance(one, RetiredReplica)])
                wanted = [one for one in batch if isinstance(one, HostTarget)]
                yield from self._host(wanted if not self._is_stopping else [])
            except Exception as error:  # the other batches continue
                log.exception(
                    Incident.DEFECT.line(
                        what=f"partitions were not made or taken away: count={len(batch)}"
                    )
                )
                self._put_all_offline(batch, error)
            for one in batch:
                if self._newest.get(one.topic_partition) is one:
                    del self._newest[one.topic_partition]
                self._settle(one.topic_id)
            self._answer_waiting()
            yield None
        idle, self._until_idle = self._until_idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)

    def _until_here(self, batch: Sequence[Change]) -> Work[None]:
        """Pause these where they do not lead, and wait until no thread holds their logs."""
        for one in batch:
            tp = one.topic_partition
            partition, partition_log = self.partitions.get(tp), self._logs.get(tp)
            if partition is not None and not partition.is_leader:
                partition.pause()
            if partition_log is not None and partition_log.lease.is_leased:
                yield Until(partition_log.lease.when_here)

    def _remove(self, gone: Sequence[RetiredReplica]) -> Work[None]:
        if not gone:
            return
        removal = Removal()
        for some in sliced(gone, SLICE):
            self._logs.let_go((one.topic_partition for one in some), removal)
            yield None
        yield OnPool(self._changes, self._logs.remove, removal)

    def _host(self, wanted: Sequence[HostTarget]) -> Work[None]:
        made = yield from self._make(wanted)
        assignments: dict[ReplicaId, bytes] = {}
        for some in sliced(wanted, SLICE):
            ready = self._ready(some, made, assignments)
            yield from self._write_epochs(ready)
            self._serve_all(ready)
            yield None
        if assignments and self._requests.assign is not None:
            self._requests.assign(assignments)

    def _make(self, wanted: Sequence[HostTarget]) -> Work[Logs]:
        """Create the logs that may be created; note why others are offline."""
        working = {directory.directory_id for directory in self._logs.online_dirs()}
        is_missing_some = self.is_missing_some or not all(one.works for one in self._logs.dirs)
        new: list[NewLog] = []
        for some in sliced(wanted, SLICE):
            new += self._to_begin(some, working, is_missing_some=is_missing_some)
            yield None
        if not new:
            return {}
        creation = self._logs.plan_creation(new)
        begun = yield OnPool(self._changes, creation.carry_out)
        made = dict(creation.known)
        for each in sliced(list(begun.items()), SLICE):
            made |= self._logs.take_created(creation, dict(each))
            yield None
        return made

    def _to_begin(
        self, wanted: Sequence[HostTarget], working: Collection[bytes], *, is_missing_some: bool
    ) -> list[NewLog]:
        new = []
        for one in wanted:
            tp = one.topic_partition
            if self._logs.get(tp) is not None or self._newest.get(tp) is not one:
                continue
            refused = self._logs.refused.get(tp)
            if reason := self._why_barred(tp.topic) if refused is None else refused.reason:
                self._put_offline(tp, reason)
                continue
            replica = describe(
                self._image,
                self._node_id,
                one.topic,
                one.number,
                one.partition,
                is_missing_some=is_missing_some,
            )
            placement = place(replica, [], working)
            if placement.offline:
                self._put_offline(tp, placement.offline)
            else:
                leads = one.partition.leader == self._node_id
                epoch = one.partition.leader_epoch if leads else None
                new.append(NewLog(*tp, one.topic.id, self._config_for(tp.topic), epoch))
        return new

    def _ready(
        self, wanted: Sequence[HostTarget], made: Logs, assignments: dict[ReplicaId, bytes]
    ) -> list[tuple[HostTarget, PartitionLog]]:
        """Return those that can take their role; the directories of others are noted first."""
        ready = []
        for one in wanted:
            tp = one.topic_partition
            partition_log = made.get(tp) or self._logs.get(tp)
            if self._newest.get(tp) is not one or partition_log is None:
                continue  # a newer change waits; or it is offline, with its reason noted
            if isinstance(partition_log, KafkaStorageError):
                self._put_offline(tp, str(partition_log))
                continue
            if partition_log.topic_id != one.topic_id:
                self._put_offline(
                    tp, "the log of a removed topic of that name is open: restart this broker"
                )
                continue
            if self._is_barred(partition_log):
                self._end_pending(tp)
                continue
            directory = self._logs.directory_of(tp)
            assert directory is not None
            noted = one.partition.directory_of(self._node_id)
            can_note = self._requests.assign is not None and can_assign(self._image)
            if can_note and noted != directory.directory_id:
                pending = Pending(one.topic_id, directory.directory_id)
                if self.pending.get(tp) != pending:  # it may have moved on meanwhile
                    self._end_pending(tp)
                    self.pending[tp] = pending
                    self._unsettled[one.topic_id] += 1
                    assignments[ReplicaId(one.topic_id, one.number)] = directory.directory_id
                continue
            self._end_pending(tp)
            ready.append((one, partition_log))
        return ready

    def _write_epochs(self, ready: Sequence[tuple[HostTarget, PartitionLog]]) -> Work[None]:
        """Write the epoch chains of those that will lead to the disk before they do."""
        new = []
        for one, partition_log in ready:
            epoch = one.partition.leader_epoch
            latest = partition_log.epochs.latest_epoch
            is_new = latest is None or epoch > latest
            is_new &= partition_log.epoch_file.is_durable  # others are written by the next flush
            if is_new and one.partition.leader == self._node_id:
                new.append((partition_log, epoch))
                partition = self.partitions.get(one.topic_partition)
                if partition is not None:
                    partition.pause()
        if new:
            yield OnPool(self._changes, self._write_each, new)

    def _write_each(self, logs: Sequence[tuple[PartitionLog, int]]) -> None:
        """Write the epoch chains in parallel, so that the disk merges their fsyncs."""
        calls = [
            partial(each.epoch_file.write_epoch_ahead, epoch, each.log_end_offset)
            for each, epoch in logs
        ]
        for done in side_by_side(self._commit, calls):
            if isinstance(error := done.exception(), Exception) and not isinstance(
                error, KafkaError
            ):
                raise error  # a KafkaError stays with the log, which raises it to its users

    def _serve_all(self, ready: Sequence[tuple[HostTarget, PartitionLog]]) -> None:
        led: list[Partition] = []
        followed: list[Partition] = []
        for one, partition_log in ready:
            if self._newest.get(one.topic_partition) is one:
                partition = self._serve(one, partition_log)
                if partition is not None:
                    (led if partition.is_leader else followed).append(partition)
        self.tell(ReplicaEvents(led=tuple(led), followed=tuple(followed)))

    def tell(self, events: ReplicaEvents) -> None:
        """Call the listeners, unless nothing has changed."""
        if events != ReplicaEvents():
            for listener in self.listeners:
                listener(events)

    # -- one replica

    def _serve(self, one: HostTarget, partition_log: PartitionLog) -> Partition | None:
        """Take the role that the metadata give; a failing disk stops this partition only."""
        tp, wanted = one.topic_partition, one.partition
        leads = wanted.leader in (self._node_id, NO_LEADER)  # none while this broker is fenced
        written = partition_log.epochs.latest_epoch or 0
        if leads and written > wanted.leader_epoch:
            self._put_too_low(one, written)
            return None
        self.offline.pop(tp, None)
        partition = self.partitions.get(tp)
        if partition is None:
            partition = Partition(
                partition_log,
                node_id=self._node_id,
                pool=self._commit,
                counters=self.metrics.of(tp.topic),
                validations=self._validations,
                leading=self._requests.leading,
            )
            self.partitions[tp] = partition
            self._by_topic.setdefault(tp.topic, {})[tp.partition] = partition
            config = self._config_for(tp.topic)
            if partition_log.config != config:  # changed while it was being made
                partition.set_config(config)
        try:
            if wanted.leader == self._node_id:
                partition.become_leader(
                    leader_epoch=wanted.leader_epoch,
                    partition_epoch=wanted.partition_epoch,
                    replicas=wanted.replicas,
                    isr=wanted.isr,
                    change=ReplicaChange(wanted.adding, wanted.removing, wanted.joining),
                    unclean_epoch=wanted.unclean_epoch,
                )
            else:
                partition.become_follower(
                    leader_id=wanted.leader,
                    leader_epoch=wanted.leader_epoch,
                    partition_epoch=wanted.partition_epoch,
                    replicas=wanted.replicas,
                    isr=wanted.isr,
                    is_recovering=wanted.leader_recovery_state == RECOVERING,
                )
        except KafkaStorageError as error:
            # The log is offline now, and raises that to its users.
            log.warning("partition cannot take its role: %s: %s", tp, error)
        return partition

    def _why_barred(self, topic: str) -> str:
        return why_barred(self._image, topic, has_tier=self._validations is not None)

    def _is_barred(self, partition_log: PartitionLog) -> bool:
        """Put it offline where it needs a tier that is not here: so it loses nothing."""
        tp = partition_log.topic_partition
        if reason := self._why_barred(tp.topic):
            partition_log.set_config(self._config_for(tp.topic))  # else retention continues
            self._put_offline(tp, reason)
        return bool(reason)

    def _put_offline(self, tp: TopicPartition, reason: str) -> None:
        if self.offline.get(tp) != reason:
            log.error(Incident.PARTITION_OFFLINE.line(partition=tp, reason=reason))
            self.offline[tp] = reason

    def _put_all_offline(self, batch: Sequence[Change], error: Exception) -> None:
        """Put the replicas of a batch offline until a restart, because of a defect."""
        for one in batch:
            if isinstance(one, HostTarget) and self._newest.get(one.topic_partition) is one:
                self._put_offline(one.topic_partition, f"it could not be made: {error!r}")

    def _put_too_low(self, one: HostTarget, written: int) -> None:
        """Append nothing until the metadata give a leader epoch at or above that of the log."""
        given, in_vain = one.partition.leader_epoch, ""
        raise_epoch = self._requests.raise_epoch
        if raise_epoch is not None and one.partition.leader == self._node_id:
            replica = ReplicaId(one.topic_id, one.number)
            in_vain = raise_epoch(replica, leader_epoch=given, used=written)
        step = in_vain or "the controller is asked for a higher one"
        self._put_offline(
            one.topic_partition,
            f"its log was written under leader epoch {written}, and the metadata say {given}: they "
            f"are of an earlier time, or {EPOCH_CHECKPOINT} is damaged; {step}. Remedy, where it "
            "stays so: put the newest copy of the metadata directory, or that file, back",
        )

    # -- answers of the controller

    def assignment_failed(self, replicas: Collection[ReplicaId], error: KafkaError) -> None:
        """Put these offline: the controller did not note their directories."""
        made = set(replicas)
        for tp, pending in list(self.pending.items()):
            if ReplicaId(pending.topic_id, tp.partition) in made:
                self._end_pending(tp)
                self._put_offline(tp, f"its log directory could not be noted: {error}")
        self._answer_waiting()

    def epoch_refused(self, one: HostTarget) -> None:
        """Note why the controller gives no higher leader epoch, in the offline reason."""
        partition_log = self._logs.get(one.topic_partition)
        if one.topic_partition in self.offline and partition_log is not None:
            self._serve(one, partition_log)


def sliced(items: Iterable[T], most: int) -> Iterable[list[T]]:
    """Split into lists of at most `most`."""
    rest = iter(items)
    while some := list(islice(rest, most)):
        yield some
