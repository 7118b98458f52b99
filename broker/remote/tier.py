"""The broker's side of the remote tier, as the rest of the broker uses it.

Made only when `remote.log.storage.system.enable=true`. Else there is no `RemoteTier`, and so no
process, no directory and no topic.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from broker.remote.answers import BrokerAnswers, ControllerQuestions
from broker.remote.assignments import Assignments
from broker.remote.fetch_metrics import RemoteFetchMetrics, RemoteStateMetrics
from broker.remote.process import start_tier_process
from broker.remote.reads import RemoteFetched, RemoteRead, RemoteReads
from broker.remote.removed_topics import RemovedTopicsFile
from broker.remote.supervisor import Spawn, Supervisor, TierStartError
from broker.remote.tier_metrics import TierMetrics
from broker.replica.hosting import ReplicaEvents
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replica.validation import ValidationTally
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, EpochEntry, TopicPartition
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.image.model import RemoteStore
from metadata_topic.quorum.node import MetadataNode
from rlm.config import TierConfig
from rlm.link.endpoint import LinkEndedError, Received, Reply
from rlm.link.messages import (
    AuxiliaryStateAnswer,
    Health,
    ImageChanged,
    RunPasses,
    SetStoreFaults,
    StoreFaultHit,
)
from rsm_plugins.store_faults import StoreFault
from runtime.clock import offset_of
from runtime.health_reasons import HealthReason
from runtime.ports import Ports

__all__ = ["RemoteFetched", "RemoteRead", "RemoteTier", "TierStartError", "TierState"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TierState:
    """The state of the tier, for health pages.

    Attributes:
        process: "down", "starting", "configured", "up" or "stopped".
        reasons: Of being unhealthy; empty when it is healthy.
        assigned, ready: Partitions sent to the tier, and those whose metadata it has caught up
            with.
    """

    process: str
    reasons: Sequence[str]
    assigned: int = 0
    ready: int = 0
    pid: int | None = None
    restarts: int = 0


class RemoteTier:
    """Starts and watches the tier process, sends it requests, and answers its own.

    Attributes:
        validations: Count of the partitions that the tier has validated.
        metrics: The tier's page of metrics.
        removed_topics: Topics whose remote data is still to be deleted.
        store_faults: Makes the faults of the store that are in force when a tier comes up.
        on_store_fault: Called with each hit of one.
    """

    def __init__(
        self,
        config: TierConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn = start_tier_process,
    ) -> None:
        """Connect the parts; nothing is started."""
        self._ports, self._loop = ports, loop
        self.config = self._own(config)
        self.validations = ValidationTally(ports.clock)
        self._health: Health | None = None
        self._last_words: list[str] = []  # the whole tier's health reasons when it ended
        self._answers: BrokerAnswers | None = None
        self._supervisor = Supervisor(self.config, ports, loop, self, spawn)
        self._led_reported: list[int] = []
        self.removed_topics = RemovedTopicsFile(
            Path(config.state_dir), config.cluster_id, ports.disk, ports.executors.commit
        )
        self.store_faults: Callable[[], list[StoreFault]] = list
        self.on_store_fault: Callable[[StoreFaultHit], None] = lambda hit: None
        metrics = ports.metrics
        self.metrics = TierMetrics(self._supervisor, ports.clock, loop, metrics)
        self._fetches = RemoteFetchMetrics(metrics)
        self._states = RemoteStateMetrics(metrics)
        metrics.gauge(
            "tidemark_remote_unvalidated_partitions",
            "Partitions led here that the tier has not validated yet",
            fn=lambda: self.validations.unvalidated,
        )

    @property
    def public_settings(self) -> frozenset[str]:
        """Names of the plugin's settings that may be shown to clients, prefix removed."""
        return self._supervisor.public_settings

    @property
    def store(self) -> RemoteStore | None:
        """The store for the broker's registration; None before the plugin accepted its settings."""
        store = self._supervisor.store
        return None if store is None else RemoteStore(*store)

    def _own(self, config: TierConfig) -> TierConfig:
        """The settings with the offset of this broker's wall clock."""
        return dataclasses.replace(config, wall_offset_ms=offset_of(self._ports.clock))

    def attach(
        self,
        replicas: ReplicaManager,
        metadata: MetadataNode,
        controller: ControllerQuestions,
    ) -> None:
        """Take the parts that answers come from; call it before clients are served."""
        self._replicas, self._metadata = replicas, metadata
        self._fetches.attach(replicas.metrics)
        self._states.attach(replicas.metrics)
        self._answers = BrokerAnswers(
            replicas,
            metadata,
            controller,
            self.removed_topics,
            ports=self._ports,
            facts=self,
        )
        self._assignments = Assignments(
            replicas,
            self._supervisor,
            self._ports.scheduler,
            lambda partition: not partition.is_internal,
            lambda: metadata.image.provenance.offset,
        )
        self._reads = RemoteReads(
            replicas=replicas,
            supervisor=self._supervisor,
            clock=self._ports.clock,
            scheduler=self._ports.scheduler,
            loop=self._loop,
        )

    async def start(self) -> None:
        """Start the tier process; done when the storage plugin has accepted its settings.

        It needs nothing else of the broker, and nothing is written before.

        Raises:
            TierStartError: A plugin cannot be loaded or refuses its settings (key and cause named).
        """
        await self._supervisor.start()

    async def connect(self, client_settings: Mapping[str, str]) -> None:
        """Let the tier work: the broker is attached and accepts its Kafka clients' connections.

        Args:
            client_settings: Address and authentication for these clients, for this tier process and
                all later ones.

        Raises:
            TierStartError: The metadata manager refuses its settings.
        """
        await self._supervisor.connect(client_settings)

    def reconfigure(self, config: TierConfig) -> None:
        """Take over settings that may change at run time (pool sizes, quotas)."""
        config = self._own(config)
        if config != self.config:
            self.config = config
            self._supervisor.reconfigure(config)

    async def set_store_faults(self) -> bool:
        """Put `store_faults` in force; False: no tier is up, and the next one begins with them."""
        asked = self._supervisor.ask(SetStoreFaults(self.store_faults()))
        try:
            await asyncio.wrap_future(asked, loop=self._loop)
        except LinkEndedError:
            return False
        return True

    async def run_passes(self) -> None:
        """Copy and expire everything that is due; done when the tier has.

        The tier uses the broker's wall clock, also if that was moved just now.

        Raises:
            LinkEndedError, LinkFailureError: There is no tier, or it ended during the passes.
        """
        self.reconfigure(self.config)
        await asyncio.wrap_future(self._supervisor.ask(RunPasses()), loop=self._loop)

    async def stop(self) -> None:
        """End the tier process; call it while the listeners are still open."""
        await self._supervisor.stop()

    # -- for fetch and list offsets

    def read(self, read: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        """Read from the remote tier; ends by the deadline, or fails with a KafkaError."""
        self._fetches.asked(read.topic)
        future = self._reads.read(read)
        future.add_done_callback(partial(self._read_ended, read))
        return future

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, deadline_ms: int
    ) -> "asyncio.Future[tuple[int, int, int] | None]":
        """(timestamp, offset, leader epoch) of the first remote record at or after a time."""
        future = self._reads.offset_for_timestamp(topic_partition, timestamp_ms, deadline_ms)
        future.add_done_callback(lambda done: self._look_up_ended(topic_partition, done))
        return future

    def auxiliary_state(
        self,
        partition: Partition,
        offset: int,
        epoch: int,
        above: Sequence[EpochEntry],
        done: Callable[[AuxiliaryStateAnswer | KafkaError], None],
    ) -> None:
        """Ask for a segment's state by `RemoteReads.auxiliary_state`, and count it."""
        self._states.building(partition.topic)

        def answered(state: AuxiliaryStateAnswer | KafkaError) -> None:
            if isinstance(state, KafkaError):
                self._states.building_failed(partition.topic)
            done(state)

        self._reads.auxiliary_state(partition, offset, epoch, above, answered)

    def _read_ended(self, read: RemoteRead, done: "asyncio.Future[RemoteFetched]") -> None:
        if done.cancelled():  # it is late: the answer is sent without it
            self._fetches.expired()
        elif done.exception() is not None:
            self._fetches.failed(read.topic)
        elif done.result().regions:
            self._fetches.got(read.topic, done.result().size_bytes)
        elif self._ports.clock.monotonic_ms() >= read.deadline_ms:
            self._fetches.expired()  # else no batch fits, or the leader changed

    def _look_up_ended(self, where: TopicPartition, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, KafkaError) and error.code == ErrorCode.REQUEST_TIMED_OUT:
            self._fetches.look_up_expired(where)

    def highest_tiered_offset(self, topic_partition: TopicPartition) -> int:
        """Last offset (inclusive) of the run in the remote tier, -1 if none (ListOffsets -5)."""
        partition = self._replicas.get(topic_partition)
        return -1 if partition is None else partition.log.copied_through

    def earliest_pending_upload(self, topic_partition: TopicPartition) -> int:
        """First offset that is not in the remote tier yet (ListOffsets -6)."""
        partition = self._replicas.get(topic_partition)
        if partition is None:
            return -1
        return max(partition.log.copied_through + 1, partition.log.log_start_offset)

    # -- changes

    def on_replicas(self, events: ReplicaEvents) -> None:
        """Report changes of roles, epochs, settings or the set of partitions to the tier."""
        self._assignments.on_replicas(events)
        led = self._led_metadata_partitions()
        if events.topics_deleted or led != self._led_reported:
            # After the removed ones are reported: the remover then finds no partition of them.
            self._assignments.when_reported(
                lambda: self._report_image(self._led_metadata_partitions())
            )

    def _report_image(self, led: list[int]) -> None:
        """Wake the remover: topics were removed, or metadata partitions have other leaders."""
        self._supervisor.tell(ImageChanged(led))
        self._led_reported = led

    def _led_metadata_partitions(self) -> list[int]:
        topic = self._metadata.image.topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            return []
        node_id = self.config.node_id
        return [index for index, found in topic.partitions.items() if found.leader == node_id]

    # -- calls of the supervisor

    def on_request(self, received: Received, reply: Reply) -> None:
        """Answer a request or take a report of the tier."""
        if isinstance(received.message, StoreFaultHit):
            self.on_store_fault(received.message)
        elif self._answers is not None:
            self._answers(received, reply)

    def on_up(self) -> None:
        """Send everything to a new tier: faults, partitions, the image."""
        faults = self.store_faults()
        if faults:
            self._supervisor.tell(SetStoreFaults(faults))
        self._assignments.on_tier_up()
        self._report_image(self._led_metadata_partitions())

    def on_down(self) -> None:
        """End all reads: the tier has ended, and answers nothing more."""
        unhealthy = () if self._health is None else self._health.unhealthy
        self._last_words = [each.reason for each in unhealthy if each.partition < 0]
        self._health = None
        if self._answers is not None:  # else it ended before the broker was attached: no reads yet
            self._reads.on_tier_down()

    # -- reports of the tier

    def on_health(self, health: Health) -> None:
        """Take the tier's latest health."""
        self._health = health

    def warnings(self) -> list[str]:
        """Reasons for `yellow`: late, or failing for long without harm to clients yet."""
        yellow = () if self._health is None else self._health.yellow
        return [*self.validations.late(), *yellow]

    @property
    def totals(self) -> Mapping[str, float]:
        """The tier's counts since its start, by the names of `Health`; empty unless it is up."""
        return {} if self._health is None else self._health.totals

    def unhealthy_partitions(self) -> dict[tuple[bytes, int], str]:
        """Why partitions are unhealthy, by topic id and partition; the first hundred or so."""
        unhealthy = () if self._health is None else self._health.unhealthy
        return {
            (one.topic_id, one.partition): one.reason for one in unhealthy if one.partition >= 0
        }

    def state(self) -> TierState:
        """The present state, with the reasons of being unhealthy."""
        supervisor, health = self._supervisor, self._health
        reasons: list[str] = []
        if supervisor.reason:
            reasons.append(HealthReason.PROCESS.text(reason=supervisor.reason))
        if reasons and health is None:
            reasons += [f"tier process, before it ended: {each}" for each in self._last_words]
        if health is not None:
            for unhealthy in health.unhealthy:
                if unhealthy.partition < 0:  # of the whole tier, not of one partition
                    reasons.append(unhealthy.reason)
                    continue
                name = self._replicas.topic_names.get(
                    unhealthy.topic_id, uuid_to_text(unhealthy.topic_id)
                )
                reasons.append(f"{name}-{unhealthy.partition}: {unhealthy.reason}")
            if health.abandoned_calls:
                reasons.append(HealthReason.HANGING.text(count=health.abandoned_calls))
        return TierState(
            process=supervisor.state,
            reasons=reasons,
            assigned=health.assigned if health is not None else 0,
            ready=health.ready if health is not None else 0,
            pid=supervisor.pid,
            restarts=supervisor.restarts,
        )
