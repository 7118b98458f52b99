"""Topics and their settings through the handlers, on an image in memory."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.handlers.alter_configs import AlterConfigsHandler
from broker.handlers.create_partitions import CreatePartitionsHandler
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.describe_configs import DescribeConfigsHandler
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.handlers.metadata import MetadataHandler
from broker.network.registry import Handler, RequestContext
from broker.topics.auto_creation import VERSION, AutoTopicCreation
from broker.topics.cluster import ClusterView
from broker.topics.creation import TopicCreation
from kafka_protocol.wire.codec import message, response
from metadata_topic.controller.result import Decided, result_of
from metadata_topic.image.image import METADATA_VERSION, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import BrokerImage, Endpoint, Provenance, RemoteStore
from metadata_topic.quorum.active.decisions import ignore_place
from runtime.work import at_once
from tests.support.sim.rng import SeededRng

R = TypeVar("R")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "num.partitions": "3",
}
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2


class MemoryNode:
    """Takes decisions as the metadata node does, without a log."""

    def __init__(self) -> None:
        endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
        broker = BrokerImage(
            1,
            0,
            bytes(16),
            endpoints,
            fenced=False,
            log_dirs=(b"d" * 16,),
            remote_store=RemoteStore("rsm:Store", b"p" * 32),
        )
        self.image = MetadataImage(brokers={1: broker}, features={METADATA_VERSION: 30})
        self.broken: Exception | None = None
        self.record_count = 0

    async def submit(
        self,
        decide: Callable[[MetadataImage], Decided[R]],
        *,
        timeout_ms: int = 0,
        placed: Callable[[int], None] = ignore_place,
    ) -> R:
        if self.broken is not None:
            raise self.broken
        result = at_once(result_of(decide(self.image)))
        loader = ImageLoader(self.image)
        for record in result.records:
            loader.add(record)
        self.record_count += len(result.records)
        loader.end_of_batch(Provenance(self.record_count, 1, 0))
        self.image, _ = loader.take()
        placed(self.record_count + 1)
        return result.response


class Left:
    """Descriptors that brokers have left; none reports again.

    Attributes:
        by_broker: those that are not in it have no bound.
    """

    def __init__(self) -> None:
        self.by_broker: dict[int, int] = {}

    def free_descriptors(self) -> dict[int, int]:
        return self.by_broker

    def replicas_placed(self, replicas: Mapping[int, int], end_offset: int) -> None:
        self.by_broker = {one: left - replicas.get(one, 0) for one, left in self.by_broker.items()}


class Admin:
    """The admin handlers over a MemoryNode."""

    def __init__(self, settings: dict[str, str], log_dir: Path) -> None:
        config, _ = BrokerConfig.load(SETTINGS | {"log.dirs": str(log_dir)} | settings)
        self.node, self.backlog = MemoryNode(), 0
        self.descriptors = Left()
        self.live = LiveConfig(config, lambda: self.node.image)
        self.cluster = ClusterView(1, "cluster", lambda: self.node.image)
        self.creation = TopicCreation(
            self.node.submit,
            defaults=self.live.topic_defaults,
            validate_config=self.live.validate_new_topic,
            rng=SeededRng(7),
            backlog=lambda: self.backlog,
        )
        self.creation.descriptors = self.descriptors
        own = CreateTopicsHandler(self.creation, self.live, is_own=True)
        self.own_topics = AutoTopicCreation(
            lambda question, _ms: own.handle(
                RequestContext(own.api_key, VERSION, 0, "own", "", ("", 0), 0), question
            ),
            self.live.topic_defaults,
        )

    def ask(self, handler: Handler, request: Any, version: int | None = None) -> Any:
        """Answer a request, encoded and decoded once so that it fits its schema."""
        chosen = handler.versions.last if version is None else version
        context = RequestContext(
            handler.api_key, chosen, 1, "test", "PLAINTEXT", ("127.0.0.1", 1), 0
        )

        async def answer() -> Any:
            found = handler.handle(context, request)
            return await found if asyncio.iscoroutine(found) else found

        answered = asyncio.run(answer())
        is_encoded = isinstance(answered, list)
        codec = response(handler.api_key)
        encoded = b"".join(answered) if is_encoded else codec.encode(answered, chosen)
        return response(handler.api_key).decode(encoded, chosen)[0]

    def create(self, *names: str, version: int | None = None, **fields: Any) -> Any:
        return self.create_answer(*names, version=version, **fields).topics

    def create_answer(self, *names: str, version: int | None = None, **fields: Any) -> Any:
        cls = message("CreateTopicsRequest").cls
        defaults = {"num_partitions": 1, "replication_factor": 1}
        configs = fields.pop("configs", {})
        validate_only = fields.pop("validate_only", False)
        topics = [
            cls.Topics(
                name=name,
                configs=[cls.Topics.Configs(name=k, value=v) for k, v in configs.items()],
                **(defaults | fields),
            )
            for name in names
        ]
        handler = CreateTopicsHandler(self.creation, self.live)
        request = cls(topics=topics, validate_only=validate_only)
        return self.ask(handler, request, version)

    def delete(self, *topics: tuple[str | None, bytes]) -> Any:
        cls = message("DeleteTopicsRequest").cls
        asked = [cls.Topics(name=name, topic_id=topic_id) for name, topic_id in topics]
        handler = DeleteTopicsHandler(
            self.cluster, self.node.submit, enabled=self.live.current.delete_topic_enable
        )
        return self.ask(handler, cls(topics=asked)).responses

    def wish(self, topic_id: bytes, wish: int) -> Any:
        cls = message("DeleteTopicsRequest").cls
        asked = [cls.Topics(name=None, topic_id=topic_id, remote_data=wish)]
        handler = DeleteTopicsHandler(
            self.cluster, self.node.submit, enabled=self.live.current.delete_topic_enable
        )
        (answer,) = self.ask(handler, cls(topics=asked)).responses
        return answer

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
        cls = message("IncrementalAlterConfigsRequest").cls
        configs = [
            cls.Resources.Configs(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = cls.Resources(resource_type=kind, resource_name=name, configs=configs)
        handler = IncrementalAlterConfigsHandler(self.node.submit, self.live)
        (answer,) = self.ask(handler, cls(resources=[resource])).responses
        return answer

    def replace(self, kind: int, name: str, configs: Mapping[str, str | None], **how: Any) -> Any:
        cls = message("AlterConfigsRequest").cls
        named = [cls.Resources.Configs(name=key, value=value) for key, value in configs.items()]
        resource = cls.Resources(resource_type=kind, resource_name=name, configs=named)
        handler = AlterConfigsHandler(self.node.submit, self.live)
        (answer,) = self.ask(handler, cls(resources=[resource], **how)).responses
        return answer

    def grow(self, *topics: tuple[str, int], version: int | None = None, **how: Any) -> Any:
        cls = message("CreatePartitionsRequest").cls
        asked = [cls.Topics(name=name, count=count, assignments=None) for name, count in topics]
        handler = CreatePartitionsHandler(self.creation)
        return self.ask(handler, cls(topics=asked, **how), version)

    def describe(self, kind: int, name: str, *keys: str) -> Any:
        cls = message("DescribeConfigsRequest").cls
        resource = cls.Resources(
            resource_type=kind, resource_name=name, configuration_keys=list(keys)
        )
        handler = DescribeConfigsHandler(self.cluster, self.live)
        request = cls(resources=[resource], include_synonyms=True, include_documentation=True)
        (answer,) = self.ask(handler, request).results
        return answer

    def metadata_of(self, *names: str, **fields: Any) -> Any:
        cls = message("MetadataRequest").cls
        topics = [cls.Topics(name=name) for name in names]
        handler = MetadataHandler(self.cluster, self.own_topics.auto_create)
        return self.ask(handler, cls(topics=topics, **fields)).topics
