"""A life of a broker whose controllers are several: it registers and beats over the wire.

The active controller may be in any of the processes, this one included, and changes while the
broker lives; each request goes to whoever leads then. A heartbeat goes out every
`broker.heartbeat.interval.ms`; without one for `broker.session.timeout.ms` the controller fences
this broker, and the next heartbeat has it unfenced again. Another process that registers under this
id ends this one: its epoch is stale.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from broker.node.active_controller import ActiveController
from broker.node.broker_life import NONE, NOT_REGISTERED
from broker.node.pauses import pause
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from local_log.producers.state import GIVEN_ID_MAX
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import NotControllerError, StaleBrokerEpochError
from metadata_topic.controller.leader_epochs import UsedEpoch
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.active.deadlines import DecisionTimedOut
from metadata_topic.quorum.node import MetadataNode
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""Pause before a request that nobody carried out is sent again."""
CHANGE_MS: Final = 10_000
LEAVE_MS: Final = 5_000
"""A stop waits so long for the controller: at the end of a whole cluster there is none."""
_BLOCKS_MAX: Final = 1_000
_REGISTRATION: Final = 4
_HEARTBEAT: Final = 1
_AGAIN: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Another controller, or the same a little later, will do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSettings:
    """What a life is made of.

    Attributes:
        cluster_id: of `meta.properties`.
        heartbeat_interval_ms: `broker.heartbeat.interval.ms`.
        offline_dirs: ids of log directories that failed since the start.
        free_descriptors: how many more files this broker may open before it uses its reserve, at
            least 0, less the replicas that it knows of by the image at the call.
        on_end: told once, why this life is over.
    """

    cluster_id: str
    heartbeat_interval_ms: int
    offline_dirs: Callable[[], Sequence[bytes]]
    free_descriptors: Callable[[], Awaitable[int]]
    on_end: Callable[[BaseException], None]


class RemoteLife:
    """See the module; a `BrokerLife`.

    Attributes:
        is_fenced: by this node's image.
    """

    def __init__(
        self,
        active: ActiveController,
        node: MetadataNode,
        registration: Registration,
        settings: LifeSettings,
        scheduler: Scheduler,
    ) -> None:
        """Nothing is asked yet."""
        self.epoch = NOT_REGISTERED
        self.is_fenced = True
        self.on_assignment_failed: Callable[[Collection[ReplicaId], KafkaError], None] = (
            lambda _replicas, _error: None
        )
        self._active, self._node, self._registration = active, node, registration
        self._settings, self._scheduler = settings, scheduler
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Future[None]] = set()
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
        """Register, fenced, and note where the replicas were found.

        Returns when this node's own image holds it. While the session of an earlier life lasts, as
        after a kill, it is tried again.

        Raises:
            KafkaError: the controller refuses this broker for good.
        """
        del refused, is_missing_some  # of lives before directories were noted: none was one of many
        async with self._one_beat:  # one of the epoch before would come in as a stale one
            self.epoch = await self._registered_epoch()
        node_id = self._registration.node_id
        await self._until(lambda image: _epoch_of(image, node_id) >= self.epoch)
        log.info("registered: node_id=%d broker_epoch=%d", node_id, self.epoch)
        elsewhere = {one: at for one, at in found.items() if self._noted(one) not in {at, None}}
        if elsewhere:
            await self._assign_all(elsewhere)
        return self.epoch

    async def _registered_epoch(self) -> int:
        while True:
            answer = await self._ask(
                ApiKey.BROKER_REGISTRATION, _REGISTRATION, await self._question()
            )
            code = ErrorCode.of(answer.error_code)
            if code == ErrorCode.NONE:
                return int(answer.broker_epoch)
            if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._say(code, "the session of an earlier life of this broker lasts: waiting")
                await self._pause(RETRY_MS)
            else:
                raise ApiError(code, f"the active controller refuses this broker: {code.name}")

    async def _question(self) -> Any:
        cls, me = request(ApiKey.BROKER_REGISTRATION).cls, self._registration
        return cls(
            broker_id=me.node_id,
            cluster_id=self._settings.cluster_id,
            incarnation_id=me.incarnation_id,
            listeners=[
                cls.Listeners(
                    name=one.name, host=one.host, port=one.port,
                    security_protocol=one.security_protocol,
                )
                for one in me.endpoints
            ],
            features=[
                cls.Features(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in me.features.items()
            ],
            rack=me.rack,
            log_dirs=list(me.log_dirs),
            keeps_directories=int(me.keeps_directories),
            free_descriptors=await self._settings.free_descriptors(),
        )  # fmt: skip

    def _noted(self, replica: ReplicaId) -> bytes | None:
        """The directory that the metadata have for a replica here; None if it is not one."""
        topic = self._node.image.topics_by_id.get(replica.topic_id)
        partition = None if topic is None else topic.partitions.get(replica.partition)
        if partition is None or self._registration.node_id not in partition.replicas:
            return None
        return partition.directory_of(self._registration.node_id)

    async def unfence(self) -> None:
        """Beat from now on; returns when this broker serves, by its own image."""
        self._begin(self._beat())
        await self._until(lambda _image: not self.is_fenced)

    async def come_back(self) -> None:
        """Do nothing: each heartbeat asks for it."""

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
                        "over: another process has registered under this id"
                    )
                )
                return
            if code != ErrorCode.NONE:
                self._say(code, f"a heartbeat was not taken: {code.name}{reason}")
            is_settled = code == ErrorCode.NONE and not self.is_fenced
            await self._pause(self._settings.heartbeat_interval_ms if is_settled else RETRY_MS)

    async def _heartbeat(self, *, want_shut_down: bool) -> ErrorCode:
        # One whose connection has ended may still be served: after the last one it would have this
        # broker serve again, which is gone by then.
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
        """Give up all leadership; after `LEAVE_MS` without it, too: the session ends by itself."""
        self._wants_to_leave = True
        if self.epoch != NOT_REGISTERED:
            try:
                async with asyncio.timeout(LEAVE_MS / 1_000):
                    while not await self._may_stop():
                        await self._pause(RETRY_MS)
            except TimeoutError:
                log.warning("no controller took note that this broker stops")
        await self.close()

    async def close(self) -> None:
        """Ask nothing more; fine to call twice."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _may_stop(self) -> bool:
        try:
            code = await self._heartbeat(want_shut_down=True)
        except KafkaError:
            return False
        return code not in _AGAIN

    # -- what else it asks

    def assign(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        """Note in which log directories new replicas were made; does not wait."""
        self._begin(self._assign(dict(assignments)))

    async def _assign(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        try:
            await self._assign_all(assignments)
        except KafkaError as error:
            log.error("log directories of new replicas could not be noted: %s", error)  # noqa: TRY400
            self.on_assignment_failed(assignments.keys(), error)

    async def _assign_all(self, assignments: Mapping[ReplicaId, bytes]) -> None:
        question = _directories_question(self._registration.node_id, self.epoch, assignments)
        answer = await self._ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, question)
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            raise ApiError(code, f"the active controller does not note directories: {code.name}")

    async def raise_leader_epochs(
        self, found: Mapping[ReplicaId, UsedEpoch]
    ) -> Mapping[ReplicaId, KafkaError]:
        """Refuse all: Kafka's wire has no such request."""
        reason = ApiError(
            ErrorCode.INVALID_REQUEST,
            "leader epochs above the metadata's are raised only where the controller is alone",
        )
        return dict.fromkeys(found, reason)

    async def producer_ids(self, used: int) -> tuple[int, int]:
        """Take a block of producer ids above `used`.

        Raises:
            DecisionTimedOut: no controller gave one in `CHANGE_MS`; clients ask again.
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
            question = cls(broker_id=self._registration.node_id, broker_epoch=self.epoch)
            answer = await self._ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, question)
            if answer.error_code:
                code = ErrorCode.of(answer.error_code)
                raise ApiError(code, f"the active controller gives no producer ids: {code.name}")
            first = answer.producer_id_start
            if not first <= used <= GIVEN_ID_MAX:
                return first, first + answer.producer_id_len
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"producer ids up to {used} were given before, and the metadata begin at {first}",
        )

    async def _ask(self, api_key: ApiKey, version: int, question: Any) -> Any:
        """Ask until whoever leads takes it; each of these questions may be asked again."""
        while True:
            try:
                answer = await self._active.ask(api_key, version, question, timeout_ms=CHANGE_MS)
            except (NotControllerError, DecisionTimedOut) as error:
                code = error.code
            else:
                code = ErrorCode.of(answer.error_code)
                if code not in _AGAIN:
                    return answer
            self._say(code, f"the active controller does not take {api_key.name} yet: {code.name}")
            await self._pause(RETRY_MS)

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

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A broker that beats no more, and does not know why, is fenced for good: it ends."""
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
