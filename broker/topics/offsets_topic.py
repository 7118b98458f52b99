"""The topic of consumer groups, `__consumer_offsets`, created for the first FindCoordinator.

As in Kafka it gets the broker's settings at creation; later changes of them do not apply to it.
"""

import asyncio
import logging
from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.topics.auto_creation import AutoTopicCreation
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import OFFSETS_TOPIC as OFFSETS_TOPIC  # users need both
from metadata_topic.controller.topic_specs import Config, TopicSpec
from metadata_topic.image.image import MetadataImage
from runtime.incidents import Incident
from runtime.log_context import LimitedLog

log = logging.getLogger(__name__)


def offsets_topic_spec(config: BrokerConfig) -> TopicSpec:
    """Specification of the topic: compacted, with the settings of `offsets.topic.*`."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return TopicSpec(
        OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs=tuple(Config(name, value) for name, value in configs.items()),
    )


class OffsetsTopic:
    """Existence and creation of the topic."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        creation: AutoTopicCreation,
        config: BrokerConfig,
    ) -> None:
        """Create nothing yet."""
        self._image, self._creation, self._config = image, creation, config
        self._seen: tuple[bytes, int] = (b"", 0)
        self._making: asyncio.Task[None] | None = None
        self._limited = LimitedLog()

    @property
    def exists(self) -> bool:
        """True if the newest committed image has it."""
        return OFFSETS_TOPIC in self._image().topics_by_name

    @property
    def partition_count(self) -> int:
        """Number of partitions that the topic has or will have.

        Fixed at the first look-up for the lifetime of this process: with another number nearly
        every group would be looked for in the wrong partition.
        """
        topic = self._image().topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return self._config.offsets_topic_num_partitions
        topic_id, count = self._seen
        if topic_id != topic.id:
            count = len(topic.partitions)
            self._seen = (topic.id, count)
        return count

    async def make(self) -> None:
        """Create the topic unless it exists; concurrent callers share one attempt.

        Failures are logged with a remedy, not raised: clients get a retriable error.
        """
        if self.exists:
            return
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._made)
        await asyncio.shield(self._making)

    def _made(self, _done: "asyncio.Task[None]") -> None:
        self._making = None

    async def _make(self) -> None:
        try:
            refused = await self._creation.create([offsets_topic_spec(self._config)])
        except KafkaError as error:
            self._log(error)
            return
        for reason in refused.values():
            if not self.exists:
                self._log(reason)

    def _log(self, error: KafkaError) -> None:
        factor = self._config.offsets_topic_replication_factor
        brokers = len(self._image().brokers)
        remedy = "repair what the error names; the controllers' log has more"
        if factor > brokers:
            remedy = (
                f"offsets.topic.replication.factor={factor} needs as many brokers, and there are "
                f"{brokers}: set it to {brokers} and restart, or start more brokers"
            )
        self._limited.error(log, Incident.OFFSETS_TOPIC.line(error=str(error), remedy=remedy))
