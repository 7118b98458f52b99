"""Making topics, for whoever asks: a client, a Metadata request on the way, or the broker itself.

The decision is the controller's; here are only the broker's defaults and rules for settings, fresh
ids, and the two topics that nobody but the broker may make.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeVar

from broker.cluster import GUARDED_TOPICS
from kafka_protocol.errors import KafkaError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_specs import NewTopic, TopicDefaults, TopicSpec
from metadata_topic.controller.topics import ConfigValidator, CreatedTopic, create_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.deadlines import DECISION_TIMEOUT_MS, DecisionTimedOut
from runtime.dice import Dice
from runtime.log_context import escape

log = logging.getLogger(__name__)

R = TypeVar("R")


class Submit(Protocol):
    """The metadata node's way in: decide on the newest image, make it durable, then answer."""

    def __call__(
        self, decide: Callable[[MetadataImage], ControllerResult[R]], *, timeout_ms: int = ...
    ) -> Awaitable[R]:
        """Return the decision's response once its records are committed.

        `timeout_ms`: how long the caller waits for that; 0 or less for the usual time.
        """
        ...


class TopicCreation:
    """Creates topics through the metadata log."""

    def __init__(
        self,
        submit: Submit,
        *,
        defaults: Callable[[], TopicDefaults],
        validate_config: ConfigValidator,
        dice: Dice,
        hosted: Callable[[Collection[bytes]], asyncio.Future[None] | None] = lambda _ids: None,
    ) -> None:
        """Write through `submit`; `defaults` is asked at each call, as it may change.

        `hosted` waits until this broker serves its replicas of topics.
        """
        self._submit = submit
        self._defaults = defaults
        self._validate_config = validate_config
        self._dice = dice
        self._hosted = hosted

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 0
    ) -> list[CreatedTopic]:
        """Create what can be created; see `create_topics`. Guarded names are not refused here.

        Returns when the replicas that this broker hosts are made and their directories are noted.
        `timeout_ms` as in `Submit`.
        """
        ids = [self._dice.uuid() for _ in topics]
        start = int(self._dice.random() * 1_000)

        def decide(image: MetadataImage) -> ControllerResult[list[CreatedTopic]]:
            return create_topics(
                image,
                topics,
                defaults=self._defaults(),
                topic_ids=ids,
                validate_config=self._validate_config,
                validate_only=validate_only,
                placement_start=start,
            )

        created: list[CreatedTopic] = await self._submit(decide, timeout_ms=timeout_ms)
        made = None if validate_only else self._hosted([t.topic_id for t in created if not t.error])
        if made is not None:
            wait_ms = timeout_ms if timeout_ms > 0 else DECISION_TIMEOUT_MS
            done, _ = await asyncio.wait({made}, timeout=wait_ms / 1000)
            if not done:
                raise DecisionTimedOut(f"the new replicas were not made in {wait_ms} ms")
        for topic in created:
            if topic.error is None and not validate_only:
                log.info("created topic: name=%s partitions=%d", topic.name, topic.num_partitions)
        return created

    async def auto_create(self, names: Sequence[str]) -> None:
        """Create topics that a client named in a Metadata request, with the broker's defaults.

        What cannot be created is logged; the client is told that the topic is unknown.
        """
        wanted = [TopicSpec(name) for name in names if name not in GUARDED_TOPICS]
        if not wanted:
            return
        try:
            created = await self.create(wanted)
        except KafkaError as error:
            log.warning("no topic could be created on the way: reason=%s", error)
            return
        for topic in created:
            if topic.error is not None:
                log.info(
                    "topic not created on the way: name=%s reason=%s",
                    escape(topic.name, 100),
                    topic.error,
                )
