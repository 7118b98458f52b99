"""The broker's side of the remote tier, as the rest of the broker sees it.

Made only when `remote.log.storage.system.enable=true`: off means that no `RemoteTier` exists, and
so no process, no directory and no topic.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.remote.answers import BrokerAnswers
from broker.remote.assignments import Assignments
from broker.remote.process import start_tier_process
from broker.remote.reads import RemoteFetched, RemoteRead, RemoteReads
from broker.remote.supervisor import Spawn, Supervisor, TierStartError
from broker.replica.manager import REMOTE_LOG_METADATA_TOPIC, ReplicaManager
from kafka_protocol.types import TopicPartition
from local_log.log_dirs import LogManager
from metadata_topic.image.image import MetadataImage
from rlm.config import TierConfig
from rlm.messages import CopiedThrough, Health, ImageChanged
from runtime.clock import Clock
from runtime.dice import Dice, SystemDice
from runtime.disk import Disk
from runtime.executors import Pool
from runtime.metrics import Registry
from runtime.scheduler import Scheduler

__all__ = ["RemoteFetched", "RemoteRead", "RemoteTier", "TierStartError", "TierState"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TierState:
    """How the tier is, for health pages.

    Attributes:
        process: "down", "starting", "up" or "stopped".
        reasons: what is wrong; empty when all is well.
        assigned, ready: partitions told to the tier, and those whose metadata it has caught up
            with.
    """

    process: str
    reasons: Sequence[str]
    assigned: int = 0
    ready: int = 0
    pid: int | None = None
    restarts: int = 0


class RemoteTier:
    """Starts and watches the tier process, asks it, and answers its questions.

    Attributes:
        tier_client_id: client id of the tier's Kafka clients, a secret of this process: who has it
            may write the metadata topic.
    """

    def __init__(
        self,
        *,
        config: TierConfig,
        replicas: ReplicaManager,
        logs: LogManager,
        image: Callable[[], MetadataImage],
        high_watermark: Callable[[], int],
        clock: Clock,
        scheduler: Scheduler,
        pool: Pool,
        metrics: Registry,
        loop: asyncio.AbstractEventLoop,
        disk: Disk | None = None,
        dice: Dice | None = None,
        spawn: Spawn = start_tier_process,
    ) -> None:
        """Wire it up; nothing is started.

        The client id of `config` is replaced by a secret made here; `high_watermark` is that of the
        metadata log (exclusive), as the quorum confirms it.
        """
        self.tier_client_id = f"tidemark-tier-{(dice or SystemDice()).uuid().hex()}"
        settings = dict(config.metadata_settings) | {"client.id": self.tier_client_id}
        self.config = dataclasses.replace(
            config, client_id=self.tier_client_id, metadata_settings=settings
        )
        self._replicas = replicas
        self._health: Health | None = None
        self._answers = BrokerAnswers(
            replicas=replicas,
            logs=logs,
            image=image,
            high_watermark=high_watermark,
            cluster_id=config.cluster_id,
            pool=pool,
            scheduler=scheduler,
            loop=loop,
            metrics=metrics,
            facts=self,
        )
        self._supervisor = Supervisor(
            config=self.config,
            disk=disk or Disk(),
            clock=clock,
            scheduler=scheduler,
            loop=loop,
            on_request=self._answers,
            on_up=self._on_up,
            on_down=self._on_down,
            spawn=spawn,
        )
        self._assignments = Assignments(
            replicas,
            self._supervisor,
            lambda partition: not partition.is_internal,
            lambda: image().provenance.offset,
        )
        self._reads = RemoteReads(
            replicas=replicas,
            supervisor=self._supervisor,
            clock=clock,
            scheduler=scheduler,
            loop=loop,
        )
        self._image = image
        self._topics_seen: frozenset[bytes] = frozenset()
        self._led_told: list[int] = []

    async def start(self) -> None:
        """Start the tier process; done when its plugins have taken their settings.

        Raises:
            TierStartError: a plugin cannot be loaded or refuses its settings (key and cause named).
        """
        await self._supervisor.start()

    async def stop(self) -> None:
        """End the tier process; call it while the listeners are still open."""
        await self._supervisor.stop()

    # -- for fetch and list offsets

    def read(self, read: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        """Read from the remote tier; ends by the deadline, or fails with a KafkaError."""
        return self._reads.read(read)

    def offset_for_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, deadline_ms: int
    ) -> "asyncio.Future[tuple[int, int, int] | None]":
        """(timestamp, offset, leader epoch) of the first remote record at or after a time."""
        return self._reads.offset_for_timestamp(topic_partition, timestamp_ms, deadline_ms)

    def highest_tiered_offset(self, topic_partition: TopicPartition) -> int:
        """Last offset (inclusive) that is in the remote tier, -1 if none (ListOffsets -5)."""
        partition = self._replicas.get(topic_partition)
        return -1 if partition is None else partition.log.copied_through

    def earliest_pending_upload(self, topic_partition: TopicPartition) -> int:
        """First offset that is not in the remote tier yet (ListOffsets -6)."""
        partition = self._replicas.get(topic_partition)
        if partition is None:
            return -1
        return max(partition.log.copied_through + 1, partition.log.log_start_offset)

    # -- changes

    def on_partitions_changed(self) -> None:
        """Roles, epochs, settings or the set of partitions changed."""
        self._assignments.reconcile()
        self._tell_image()

    def _tell_image(self) -> None:
        """Wake the remover when topics went away or metadata partitions moved."""
        topics = frozenset(self._image().topics_by_id)
        led = self._led_metadata_partitions()
        if self._topics_seen - topics or led != self._led_told:
            self._supervisor.tell(ImageChanged(led))
            self._led_told = led
        self._topics_seen = topics

    def _led_metadata_partitions(self) -> list[int]:
        topic = self._image().topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            return []
        node_id = self.config.node_id
        return [index for index, found in topic.partitions.items() if found.leader == node_id]

    def _on_up(self) -> None:
        self._assignments.on_tier_up()
        self._led_told = self._led_metadata_partitions()
        self._supervisor.tell(ImageChanged(self._led_told))

    def _on_down(self) -> None:
        self._health = None
        self._reads.on_tier_down()

    # -- what the tier reports

    def on_copied(self, report: CopiedThrough) -> None:
        """A run of copied offsets was reported; the log has taken it already."""

    def on_health(self, health: Health) -> None:
        """How the tier is."""
        self._health = health

    def state(self) -> TierState:
        """How the tier is now."""
        supervisor, health = self._supervisor, self._health
        reasons = [f"tier process: {supervisor.reason}"] if supervisor.reason else []
        if health is not None:
            for red in health.red:
                name = self._replicas.topic_names.get(red.topic_id, red.topic_id.hex())
                reasons.append(f"{name}-{red.partition}: {red.reason}")
            if health.abandoned_calls:
                reasons.append(f"{health.abandoned_calls} plugin calls hang")
        return TierState(
            process=supervisor.state,
            reasons=reasons,
            assigned=health.assigned if health is not None else 0,
            ready=health.ready if health is not None else 0,
            pid=supervisor.pid,
            restarts=supervisor.restarts,
        )
