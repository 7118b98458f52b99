"""One incarnation of a broker in the cluster metadata: its requests to the active controller.

The active controller may be in any of the processes, this one included, and may change; each
request goes to the present one, see `ActiveController`. A heartbeat goes out every
`broker.heartbeat.interval.ms`. Without one for `broker.session.timeout.ms` the controller fences
this broker, and the next heartbeat has it unfenced again. If the only controller is in this
process, neither can be gone without the other. Then heartbeats end when this broker serves, and
begin again when a log directory fails. Another process that registers under this id ends this
incarnation: its broker epoch is stale.

Registering fences the earlier incarnation of this node id: each partition that it led goes up one
leader epoch. Unfencing elects the broker again (one more). So leader epochs rise by two at each
restart, as in Kafka, after a stop or a kill.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from broker.config.rules import CLUSTER_SECRET_KEY
from broker.node.active_controller import ActiveController
from broker.replica.manager import ReplicaManager
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from local_log.producers.state import GIVEN_ID_MAX
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import NotControllerError, StaleBrokerEpochError
from metadata_topic.controller.features import unserved_features
from metadata_topic.controller.leader_epochs import UsedEpoch
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import spare_directory
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.rpc import only_partition, quorum_question
from runtime.executors import Pool
from runtime.scheduler import Scheduler, pause
from runtime.work import Pace, Steps, run_in_steps

log = logging.getLogger(__name__)

NOT_REGISTERED: Final = -1
NONE: Final[Mapping[ReplicaId, bytes]] = {}
RETRY_MS: Final = 100
"""Pause before a request that was not carried out is sent again."""
CHANGE_MS: Final = 10_000
LEAVE_MS: Final = 5_000
"""A stop waits at most this long: at the end of a whole cluster there is no controller."""
_BLOCKS_MAX: Final = 1_000
_REGISTRATION: Final = 4
_HEARTBEAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    """The parts of an incarnation that come from outside.

    Attributes:
        cluster_id: Of `meta.properties`.
        heartbeat_interval_ms: `broker.heartbeat.interval.ms`.
        offline_dirs: Ids of log directories that failed since the start.
        free_descriptors: Files that this broker may still open before it uses its reserve, at least
            0. The replicas of its image at the call are subtracted.
        on_end: Called once, with the reason why this incarnation is over.
    """

    cluster_id: str
    heartbeat_interval_ms: int
    offline_dirs: Callable[[], Sequence[bytes]]
    free_descriptors: Callable[[], Awaitable[int]]
    on_end: Callable[[BaseException], None]


class BrokerLifecycle:
    """One incarnation of this broker; use it from the event loop's thread only.

    Attributes:
        epoch: The broker epoch, offset of this incarnation's registration; -1 before.
        is_fenced: By this node's image.
        on_assignment_failed: Called with replicas whose directory was not noted, and the error.
    """

    def __init__(
        self,
        active: ActiveController,
        node: MetadataNode,
        registration: Registration,
        settings: LifecycleSettings,
        scheduler: Scheduler,
    ) -> None:
        """Send nothing yet."""
        self.epoch = NOT_REGISTERED
        self.is_fenced = True
        self.on_assignment_failed: Callable[[Collection[ReplicaId], KafkaError], None] = (
            lambda _replicas, _error: None
        )
        self._active, self._node, self._registration = active, node, registration
        self._settings, self._scheduler = settings, scheduler
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._beating: asyncio.Task[None] | None = None
        self._wants_to_leave = False
        self._one_beat = asyncio.Lock()
        self._said: ErrorCode | None = None
        node.subscribe(lambda image, _delta: self._see(image))

    # -- begin

    async def register(
        self,
        found: Mapping[ReplicaId, bytes],
        *,
        refused: Mapping[ReplicaId, bytes] = NONE,
        is_missing_some: bool = False,
    ) -> int:
        """Register, fenced, so without any leadership; and note the directories of the replicas.

        Returns when this node's own image has the registration. While the session of an earlier
        incarnation lasts, as after a kill, it is tried again.

        Args:
            found: Directory id of each replica whose log is open.
            refused: Directory id of each replica whose files are here and cannot be used.
            is_missing_some: A log directory is missing or does not work.

        Returns:
            The broker epoch of this incarnation.

        Raises:
            KafkaError: The controller refuses this broker permanently.
        """
        moved = await run_in_steps(self._elsewhere(found))
        async with self._one_beat:  # a heartbeat of the former epoch would be answered as stale
            self.epoch = await self._registered_epoch(moved, refused, int(is_missing_some))
        node_id = self._registration.node_id
        await self._until(lambda image: _epoch_of(image, node_id) >= self.epoch)
        log.info("registered: node_id=%d broker_epoch=%d", node_id, self.epoch)
        # A controller of Apache Kafka skips them: their field is Tidemark's.
        if left := await run_in_steps(self._elsewhere(moved)):
            await self._assign_all(left)
        return self.epoch

    def _elsewhere(self, found: Mapping[ReplicaId, bytes]) -> Steps[dict[ReplicaId, bytes]]:
        """Return the replicas for which the metadata have another directory, or none yet."""
        elsewhere, pace = {}, Pace()
        for replica, directory_id in found.items():
            if self._noted(replica) not in {directory_id, None}:
                elsewhere[replica] = directory_id
            if pace.is_step_over():
                yield
        return elsewhere

    async def _registered_epoch(
        self,
        found: Mapping[ReplicaId, bytes],
        refused: Mapping[ReplicaId, bytes],
        is_missing_some: int,
    ) -> int:
        while True:
            question = await self._question()
            entry = type(question).Replicas
            question.replicas = [
                entry(topic_id=one.topic_id, partition=one.partition, directory_id=at, refused=off)
                for replicas, off in ((found, False), (refused, True))
                for one, at in replicas.items()
            ]
            question.is_missing_directory = is_missing_some
            answer = await self._ask(ApiKey.BROKER_REGISTRATION, _REGISTRATION, question)
            code = ErrorCode.of(answer.error_code)
            if code == ErrorCode.NONE:
                return int(answer.broker_epoch)
            if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._say(
                    code,
                    "waiting: the session of an earlier incarnation of this broker lasts, or "
                    "another "
                    f"process has node.id={self._registration.node_id}",
                )
                await self._pause(RETRY_MS)
            else:
                raise ApiError(code, self._refusal(code))

    def _refusal(self, code: ErrorCode) -> str:
        text = f"the active controller refuses this broker: {code.name}"
        if code == ErrorCode.POLICY_VIOLATION:
            return (
                f"{text}: the controller shares its process with a broker that has a remote tier "
                f"and no secret of the cluster. Name its file in {CLUSTER_SECRET_KEY} there, the "
                "same as on all brokers with a tier"
            )
        unserved = unserved_features(self._node.image)
        if code != ErrorCode.UNSUPPORTED_VERSION or not unserved:
            return text
        levels = ", ".join(f"{name}={level}" for name, level in sorted(unserved.items()))
        return (
            f"{text}. The cluster has finalised {levels}, which this version does not serve: lower "
            "them (kafka-features.sh downgrade --feature NAME=0), or format the controllers with "
            "--feature NAME=0"
        )

    async def _question(self) -> Any:
        cls, me = request(ApiKey.BROKER_REGISTRATION).cls, self._registration
        store = me.remote_store
        return cls(
            broker_id=me.node_id,
            cluster_id=self._settings.cluster_id,
            incarnation_id=me.incarnation_id,
            rack=me.rack,
            log_dirs=_with_a_spare(me.log_dirs),
            previous_broker_epoch=me.previous_epoch,
            keeps_directories=int(me.keeps_directories),
            free_descriptors=await self._settings.free_descriptors(),
            remote_store_class=None if store is None else store.class_name,
            remote_store_place=None if store is None else store.place_hash,
            **listeners_and_features(cls, me),
        )

    def _noted(self, replica: ReplicaId) -> bytes | None:
        """The directory of a replica in the metadata; None if it is not this broker's."""
        topic = self._node.image.topics_by_id.get(replica.topic_id)
        partition = None if topic is None else topic.partitions.get(replica.partition)
        if partition is None or self._registration.node_id not in partition.replicas:
            return None
        return partition.directory_of(self._registration.node_id)

    async def unfence(self) -> None:
        """Send heartbeats from now on; returns when this broker serves, by its own image."""
        self.come_back()
        await self._until(lambda _image: not self.is_fenced)

    def come_back(self) -> None:
        """Send heartbeats, also if they had ended, to be unfenced; does not wait."""
        if self._beating is None or self._beating.done():
            self._beating = self._begin(self._beat())

    def report_directories(self) -> None:
        """Report failed log directories to the controller now; does not wait.

        Heartbeats may have ended, or one without these directories may be under way.

        Source: KIP-858, which has a broker send its next heartbeat at once.
        """
        if self._beating is not None:
            self._beating.cancel()
            self._beating = self._begin(self._beat())

    # -- heartbeats

    async def _beat(self) -> None:
        while not self._wants_to_leave:
            reason = ""
            try:
                code = await self._heartbeat(want_shut_down=False)
            except KafkaError as error:
                code, reason = error.code, f": {error}"
            if code == ErrorCode.STALE_BROKER_EPOCH:
                self._settings.on_end(
                    StaleBrokerEpochError(
                        f"broker epoch {self.epoch} of node.id={self._registration.node_id} is "
                        "over: another process has registered under this id, or it was unregistered"
                    )
                )
                return
            if code != ErrorCode.NONE:
                self._say(code, f"a heartbeat was not taken: {code.name}{reason}")
            is_settled = code == ErrorCode.NONE and not self.is_fenced
            if is_settled and self._node.is_alone:
                return
            await self._pause(self._settings.heartbeat_interval_ms if is_settled else RETRY_MS)

    async def _heartbeat(self, *, want_shut_down: bool) -> ErrorCode:
        # A heartbeat whose connection has ended may still be carried out. After the last one it
        # would unfence this broker, which is gone by then.
        async with self._one_beat:
            if self._wants_to_leave and not want_shut_down:
                return ErrorCode.NONE
            return await self._one_heartbeat(want_shut_down=want_shut_down)

    async def _one_heartbeat(self, *, want_shut_down: bool) -> ErrorCode:
        cls = request(ApiKey.BROKER_HEARTBEAT).cls
        offset = self._node.image.provenance.offset  # before the descriptors are counted
        question = cls(
            broker_id=self._registration.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=offset,
            want_fence=False,
            want_shut_down=want_shut_down,
            offline_log_dirs=list(self._settings.offline_dirs()),
            free_descriptors=await self._settings.free_descriptors(),
        )
        interval_ms = self._settings.heartbeat_interval_ms
        answer = await self._active.ask(
            ApiKey.BROKER_HEARTBEAT, _HEARTBEAT, question, timeout_ms=interval_ms
        )
        code = ErrorCode.of(answer.error_code)
        if code == ErrorCode.NONE:
            self._said = None
            if want_shut_down and not answer.should_shut_down:
                code = ErrorCode.REQUEST_TIMED_OUT  # not yet
        return code

    async def leave(self) -> None:
        """Give up all leadership; gives up waiting after `LEAVE_MS`: the session then times out."""
        self._wants_to_leave = True
        if self.epoch != NOT_REGISTERED:
            try:
                async with asyncio.timeout(LEAVE_MS / 1_000):
                    while not await self._may_stop():
                        await self._pause(0 if self._node.is_alone else RETRY_MS)
            except TimeoutError:
                log.warning("no controller took note that this broker stops")
        await self.close()

    async def close(self) -> None:
        """Send nothing more; fine to call twice."""
        self._wants_to_leave = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _may_stop(self) -> bool:
        try:
            code = await self._heartbeat(want_shut_down=True)
        except KafkaError as error:
            code = error.code
        return not self._will_be_taken(code)

    # -- other requests

    def assign(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        """Have the metadata note the log directories of new replicas; does not wait."""
        self._begin(self._assign(dict(assignments)))

    async def _assign(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        try:
            await self._assign_all(assignments)
        except KafkaError as error:
            log.warning("log directories of new replicas could not be noted: %s", error)
            self.on_assignment_failed(assignments.keys(), error)

    async def _assign_all(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        question = _directories_question(self._registration.node_id, self.epoch, assignments)
        answer = await self._ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, question)
        _check(answer, "note directories")

    async def raise_leader_epochs(
        self, found: Mapping[ReplicaId, UsedEpoch]
    ) -> Mapping[ReplicaId, KafkaError]:
        """Have the controller give leader epochs above those that were used before.

        Returns:
            The error of each partition that it refuses.

        Raises:
            KafkaError: It does not answer now; the request may be repeated.
        """
        cls = request(ApiKey.RAISE_LEADER_EPOCHS).cls
        question = cls(
            broker_id=self._registration.node_id,
            broker_epoch=self.epoch,
            partitions=[
                cls.Partitions(
                    topic_id=one.topic_id,
                    partition_index=one.partition,
                    leader_epoch=asked.leader_epoch,
                    used_epoch=asked.used,
                )
                for one, asked in found.items()
            ],
        )
        try:
            answer = await self._active.ask(
                ApiKey.RAISE_LEADER_EPOCHS, 0, question, timeout_ms=CHANGE_MS
            )
        except ApiError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return dict.fromkeys(found, error)
        _check(answer, "raise leader epochs")
        return {
            ReplicaId(one.topic_id, one.partition_index): ApiError(
                ErrorCode.of(one.error_code), one.error_message or ""
            )
            for one in answer.partitions
            if one.error_code
        }

    async def update_removed_topics(self, emptied: Collection[bytes]) -> None:
        """Remove topics from the list of removed ones, by id: the remote store has none of them.

        A controller of Apache Kafka keeps no list: they leave that of this node.

        Raises:
            KafkaError: It is not carried out, or perhaps not; the request may be repeated.
        """
        question = request(ApiKey.UPDATE_REMOVED_TOPICS).cls(
            broker_id=self._registration.node_id,
            broker_epoch=self.epoch,
            emptied=list(emptied),
        )
        try:
            answer = await self._active.ask(
                ApiKey.UPDATE_REMOVED_TOPICS, 0, question, timeout_ms=CHANGE_MS
            )
        except ApiError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            self._node.drop_removed(emptied)
            return
        _check(answer, "update removed topics")

    async def describe_quorum(self, timeout_ms: int) -> Any:
        """The leader's description of the metadata quorum: the partition of its answer.

        None where no leader answers.
        """
        try:
            answer = await self._active.ask(
                ApiKey.DESCRIBE_QUORUM, 0, quorum_question(), timeout_ms=timeout_ms
            )
        except KafkaError:
            return None
        return only_partition(answer.topics, "topic_name", "partition_index")

    async def producer_ids(self, used: int) -> tuple[int, int]:
        """Take a block of producer ids above `used`: the first one, and the end (exclusive).

        Args:
            used: The highest id in this broker's logs; -1 for none.

        Raises:
            DecisionTimedOut: No controller gave one in `CHANGE_MS`; clients ask again.
        """
        try:
            async with asyncio.timeout(CHANGE_MS / 1_000):
                return await self._block_above(used)
        except TimeoutError:
            raise DecisionTimedOut("no active controller gives producer ids") from None

    async def _block_above(self, used: int) -> tuple[int, int]:
        cls = request(ApiKey.ALLOCATE_PRODUCER_IDS).cls
        first = -1
        for _ in range(_BLOCKS_MAX):
            question = cls(
                broker_id=self._registration.node_id,
                broker_epoch=self.epoch,
                used_producer_id=used,
            )
            answer = await self._ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, question)
            _check(answer, "give producer ids")
            first = answer.producer_id_start
            if not first <= used <= GIVEN_ID_MAX:
                return first, first + answer.producer_id_len
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"producer ids up to {used} were given before, and the metadata begin at {first}",
        )

    async def _ask(self, api_key: ApiKey, version: int, question: Any) -> Any:
        """Send it until the active controller takes it; each of these requests may be repeated."""
        while True:
            try:
                answer = await self._active.ask(api_key, version, question, timeout_ms=CHANGE_MS)
            except (NotControllerError, DecisionTimedOut) as error:
                code = error.code
                if not self._will_be_taken(code):
                    raise
            else:
                code = ErrorCode.of(answer.error_code)
                if not self._will_be_taken(code):
                    return answer
            self._say(code, f"the active controller does not take {api_key.name} yet: {code.name}")
            await self._pause(RETRY_MS)

    def _will_be_taken(self, code: ErrorCode) -> bool:
        """True if another controller, or the same one a little later, will carry it out.

        An only controller that takes no decisions has failed, and this process ends.
        """
        if code == ErrorCode.NOT_CONTROLLER:
            return not self._node.is_alone
        return code == ErrorCode.REQUEST_TIMED_OUT

    # -- time

    async def _until(self, holds: Callable[[MetadataImage], bool]) -> None:
        while not holds(self._node.image):
            changed = asyncio.get_running_loop().create_future()
            self._waiting.add(changed)
            try:
                await changed
            finally:
                self._waiting.discard(changed)

    def _see(self, image: MetadataImage) -> None:
        broker = image.brokers.get(self._registration.node_id)
        is_fenced = broker is None or broker.epoch != self.epoch or broker.fenced
        if is_fenced is not self.is_fenced:
            self.is_fenced = is_fenced
            if not is_fenced:
                log.info("this broker serves: broker_epoch=%d", self.epoch)
            elif not self._wants_to_leave:
                log.warning("this broker was fenced: its heartbeats did not arrive in time")
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)

    async def _pause(self, delay_ms: int) -> None:
        await pause(self._scheduler, delay_ms)

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """End the broker if a task failed: without heartbeats it would stay fenced."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._settings.on_end(error)

    def _say(self, code: ErrorCode, text: str) -> None:
        if code != self._said:
            self._said = code
            log.info("%s", text)


def _epoch_of(image: MetadataImage, broker_id: int) -> int:
    broker = image.brokers.get(broker_id)
    return NOT_REGISTERED if broker is None else broker.epoch


def _check(answer: Any, what: str) -> None:
    if answer.error_code:
        code = ErrorCode.of(answer.error_code)
        raise ApiError(code, f"the active controller does not {what}: {code.name}")


def listeners_and_features(cls: Any, me: Registration) -> dict[str, list[Any]]:
    """The fields that registrations of brokers and controllers share; `cls` is the request's."""
    return {
        "listeners": [
            cls.Listeners(
                name=one.name,
                host=one.host,
                port=one.port,
                security_protocol=one.security_protocol,
            )
            for one in me.endpoints
        ],
        "features": [
            cls.Features(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in me.features.items()
        ],
    }


def _with_a_spare(directories: Sequence[bytes]) -> list[bytes]:
    """The ids to register; the spare one is left when all directories but one fail."""
    return [*directories, *map(spare_directory, directories[:1])]


def _directories_question(
    broker_id: int, broker_epoch: int, assignments: Mapping[ReplicaId, bytes]
) -> Any:
    cls = request(ApiKey.ASSIGN_REPLICAS_TO_DIRS).cls
    directory, topic = cls.Directories, cls.Directories.Topics
    ordered = sorted((at, one.topic_id, one.partition) for one, at in assignments.items())
    return cls(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        directories=[
            directory(
                id=at,
                topics=[
                    topic(
                        topic_id=topic_id,
                        partitions=[topic.Partitions(partition_index=i) for _, _, i in partitions],
                    )
                    for topic_id, partitions in groupby(topics, lambda one: one[1])
                ],
            )
            for at, topics in groupby(ordered, lambda one: one[0])
        ],
    )


class BrokerDescriptors:
    """The free descriptors of brokers, those of this one counted at the call.

    Implements `Descriptors` of a creation. Other brokers report over the wire. The count of this
    one matters while this node's own controller is the active one.
    """

    def __init__(
        self,
        node: MetadataNode,
        incarnation: BrokerLifecycle,
        replicas: ReplicaManager,
        count: Callable[[], int],
        pool: Pool,
    ) -> None:
        """Take the parts.

        Args:
            node: Has this broker's image.
            incarnation: Of this broker.
            replicas: Counts the replicas that wait for a disk.
            count: Returns how many files new partitions may open.
            pool: Counts for the heartbeats.
        """
        self._node, self._life, self._replicas = node, incarnation, replicas
        self._count, self._pool = count, pool

    async def left(self) -> int:
        """Files that new partitions may open on this broker, at least 0.

        Replicas of the image at the call that wait for a disk open theirs soon, and are subtracted.
        Before Linux 6.2 the open files are counted one by one, so not on the event loop.
        """
        backlog = self._replicas.hosting.backlog
        return max(0, await self._pool.run(self._count) - backlog)

    def free_descriptors(self) -> Mapping[int, int]:
        """Replicas that brokers may still take, by broker id; an absent broker has no bound."""
        node, brokers = self._node, self._node.brokers
        left = max(0, self._count() - self._replicas.hosting.backlog)
        offset = node.image.provenance.offset
        brokers.report_descriptors(node.node_id, self._life.epoch, left, offset)
        return brokers.free_descriptors()

    def replicas_placed(self, replicas: Mapping[int, int], end_offset: int) -> None:
        """Note the replicas by broker id that records below `end_offset` (exclusive) give them."""
        self._node.brokers.replicas_placed(replicas, end_offset)
