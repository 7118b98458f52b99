"""The topic of consumer groups, `__consumer_offsets`: made when the first client asks for a group.

As in Kafka it is made with the broker's settings, once; what they say later has no effect on it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.topics.auto_creation import AutoTopicCreation
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import OFFSETS_TOPIC as OFFSETS_TOPIC  # those who ask about it need both
from metadata_topic.controller.topic_specs import Config, TopicSpec
from metadata_topic.image.image import MetadataImage

log = logging.getLogger(__name__)

_LOG_AGAIN_S: Final = 60
"""An error that clients meet with each try has a line in the log no more often."""


def offsets_topic_spec(config: BrokerConfig) -> TopicSpec:
    """What the topic is made of."""
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
    """Whether the topic is there, and its making."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        creation: AutoTopicCreation,
        config: BrokerConfig,
    ) -> None:
        """Make nothing yet."""
        self._image, self._creation, self._config = image, creation, config
        self._seen: tuple[bytes, int] = (b"", 0)
        self._making: asyncio.Task[None] | None = None
        self._silent_until_s = float("-inf")

    @property
    def exists(self) -> bool:
        """Whether the metadata hold it."""
        return OFFSETS_TOPIC in self._image().topics_by_name

    @property
    def partition_count(self) -> int:
        """How many partitions it has, or is going to have.

        The number that was seen first of a topic holds for the lifetime of this broker: with
        another one nearly every group would be looked for where its offsets are not.
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
        """Make it unless it exists; all who ask meanwhile wait for the same attempt.

        What goes wrong is in the log, with the remedy: clients only hear that they shall try
        again.
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
        now_s = asyncio.get_running_loop().time()
        if now_s < self._silent_until_s:
            return
        self._silent_until_s = now_s + _LOG_AGAIN_S
        factor = self._config.offsets_topic_replication_factor
        brokers = len(self._image().brokers)
        remedy = ""
        if factor > brokers:
            remedy = (
                f"; offsets.topic.replication.factor={factor} needs as many brokers, and there are "
                f"{brokers}: set it to {brokers} and restart, or start more brokers"
            )
        log.error(
            "%s cannot be made, so no consumer group works: %s%s", OFFSETS_TOPIC, error, remedy
        )
