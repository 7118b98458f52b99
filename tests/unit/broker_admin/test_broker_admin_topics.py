"""Creating, changing and deleting topics through the handlers, on an image in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.cluster import ClusterView
from broker.config.broker_config import BrokerConfig
from broker.handlers import (
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from broker.handlers.registry import Handler, RequestContext
from broker.live_config import LiveConfig
from broker.topic_creation import TopicCreation
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.codec import message, response
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_specs import Config, TopicSpec
from metadata_topic.image.image import METADATA_VERSION, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import BrokerImage, Endpoint, Provenance
from runtime.dice import SeededDice

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
        broker = BrokerImage(1, 0, bytes(16), endpoints, fenced=False, log_dirs=(b"d" * 16,))
        self.image = MetadataImage(brokers={1: broker}, features={METADATA_VERSION: 30})
        self.broken: Exception | None = None
        self.record_count = 0

    async def submit(
        self, decide: Callable[[MetadataImage], ControllerResult[R]], *, timeout_ms: int = 0
    ) -> R:
        if self.broken is not None:
            raise self.broken
        result = decide(self.image)
        loader = ImageLoader(self.image)
        for record in result.records:
            loader.add(record)
        self.record_count += len(result.records)
        loader.end_of_batch(Provenance(self.record_count, 1, 0))
        self.image, _ = loader.take()
        return result.response


class Admin:
    """The admin handlers over a MemoryNode."""

    def __init__(self, settings: dict[str, str], log_dir: Path) -> None:
        config, _ = BrokerConfig.load(SETTINGS | {"log.dirs": str(log_dir)} | settings)
        self.node = MemoryNode()
        self.live = LiveConfig(config, lambda: self.node.image)
        self.cluster = ClusterView(1, "cluster", lambda: self.node.image)
        self.creation = TopicCreation(
            self.node.submit,
            defaults=self.live.topic_defaults,
            validate_config=self.live.validate_new_topic,
            dice=SeededDice(7),
        )

    def ask(self, handler: Handler, request: Any, version: int | None = None) -> Any:
        """Answer a request, encoded and decoded once so that it fits its schema."""
        chosen = handler.max_version if version is None else version
        context = RequestContext(
            handler.api_key, chosen, 1, "test", "PLAINTEXT", ("127.0.0.1", 1), 0
        )

        async def answer() -> Any:
            found = handler.handle(context, request)
            return await found if asyncio.iscoroutine(found) else found

        encoded = response(handler.api_key).encode(asyncio.run(answer()), chosen)
        return response(handler.api_key).decode(encoded, chosen)[0]

    def create(self, *names: str, version: int | None = None, **fields: Any) -> Any:
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
        handler = create_topics.make(self.creation, self.live)
        request = cls(topics=topics, validate_only=validate_only)
        return self.ask(handler, request, version).topics

    def delete(self, *topics: tuple[str | None, bytes]) -> Any:
        cls = message("DeleteTopicsRequest").cls
        asked = [cls.Topics(name=name, topic_id=topic_id) for name, topic_id in topics]
        handler = delete_topics.make(
            self.cluster, self.node.submit, enabled=self.live.current.delete_topic_enable
        )
        return self.ask(handler, cls(topics=asked)).responses

    def wish(self, topic_id: bytes, wish: int) -> Any:
        cls = message("DeleteTopicsRequest").cls
        asked = [cls.Topics(name=None, topic_id=topic_id, remote_data=wish)]
        handler = delete_topics.make(
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
        handler = incremental_alter_configs.make(self.node.submit, self.live)
        (answer,) = self.ask(handler, cls(resources=[resource])).responses
        return answer

    def describe(self, kind: int, name: str, *keys: str) -> Any:
        cls = message("DescribeConfigsRequest").cls
        resource = cls.Resources(
            resource_type=kind, resource_name=name, configuration_keys=list(keys)
        )
        handler = describe_configs.make(self.cluster, self.live)
        request = cls(resources=[resource], include_synonyms=True, include_documentation=True)
        (answer,) = self.ask(handler, request).results
        return answer

    def metadata_of(self, *names: str, **fields: Any) -> Any:
        cls = message("MetadataRequest").cls
        topics = [cls.Topics(name=name) for name in names]
        handler = metadata.make(self.cluster, self.creation.auto_create)
        return self.ask(handler, cls(topics=topics, **fields)).topics


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin({}, tmp_path)


def test_a_created_topic_is_told_with_all_its_settings(admin: Admin) -> None:
    (topic,) = admin.create("orders", num_partitions=2, configs={"retention.ms": "1000"})
    assert topic.error_code == 0
    assert topic.error_message is None
    assert topic.topic_id == admin.node.image.topics_by_name["orders"].id
    assert (topic.num_partitions, topic.replication_factor) == (2, 1)
    names = [config.name for config in topic.configs]
    assert names == sorted(names)
    retention = next(config for config in topic.configs if config.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("1000", 1)


def test_minus_one_means_the_brokers_default(admin: Admin) -> None:
    (topic,) = admin.create("orders", num_partitions=-1, replication_factor=-1)
    assert topic.num_partitions == 3


def test_an_old_name_of_a_setting_is_stored_as_todays(tmp_path: Path) -> None:
    admin = Admin(
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "rsm_plugins.local_fs:X",
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        },
        tmp_path,
    )
    (topic,) = admin.create("tides", configs={"remote.log.storage.enable": "true"})
    assert topic.error_code == 0
    assert admin.node.image.topic_config("tides") == {"remote.storage.enable": "true"}


BAD_TOPICS = {
    "N081": ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N082": (".", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N083": ("../../etc/x", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N084": ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N084-long": ("x" * 32_767, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N085": ("bücher", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N085-newline": ("orders\n", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N086": ("a.b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "N087": ("new", {"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    "N088": ("new", {"num_partitions": 10**9}, ErrorCode.POLICY_VIOLATION),
    "N089": ("new", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "N089-2": ("new", {"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "N091": ("new", {"configs": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG),
    "N092": ("new", {"configs": {"retention.ms": "${env:HOME}"}}, ErrorCode.INVALID_CONFIG),
    "null": ("new", {"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
    "exists": ("a_b", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
    "cluster": ("__cluster_metadata", {}, ErrorCode.POLICY_VIOLATION),
    "remote": ("__remote_log_metadata", {}, ErrorCode.POLICY_VIOLATION),
}


@pytest.mark.parametrize("row", BAD_TOPICS)
@pytest.mark.parametrize("version", [2, 7])
def test_bad_topic(admin: Admin, row: str, version: int) -> None:
    admin.create("a_b")
    before = admin.node.image
    name, fields, code = BAD_TOPICS[row]
    (topic,) = admin.create(name, version=version, **fields)
    assert (topic.name, topic.error_code) == (name, code)
    assert topic.error_message
    assert len(topic.error_message) < 700
    assert admin.node.image.topics_by_name == before.topics_by_name
    assert admin.node.image.configs == before.configs


@pytest.mark.parametrize("brokers", [[1, 1], [1, 9], []])
def test_bad_input_n090_a_manual_assignment_that_cannot_be(
    admin: Admin, brokers: list[int]
) -> None:
    cls = message("CreateTopicsRequest").cls.Topics.Assignments
    (topic,) = admin.create(
        "new",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[cls(partition_index=0, broker_ids=brokers)],
    )
    assert topic.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_one_bad_topic_does_not_hold_back_the_others(admin: Admin) -> None:
    answers = {t.name: t.error_code for t in admin.create("good", "bad name", "__cluster_metadata")}
    assert answers == {"good": 0, "bad name": 17, "__cluster_metadata": 44}
    assert list(admin.node.image.topics_by_name) == ["good"]


def test_validate_only_creates_nothing(admin: Admin) -> None:
    (topic,) = admin.create("orders", validate_only=True)
    assert (topic.error_code, topic.topic_id) == (0, ZERO_UUID)
    assert admin.node.image.topics_by_name == {}


def test_a_metadata_log_that_takes_nothing_is_told_per_topic(admin: Admin) -> None:
    admin.node.broken = ApiError(ErrorCode.NOT_CONTROLLER, "the disk failed")
    assert [t.error_code for t in admin.create("a", "b")] == [41, 41]
    assert [t.error_code for t in admin.delete(("a", ZERO_UUID))] == [41]
    assert admin.alter(TOPIC, "a", ("retention.ms", SET, "1")).error_code == 41
    assert admin.metadata_of("a")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_named_more_than_once_is_refused_once_and_stays(admin: Admin) -> None:
    (made,) = admin.create("a")
    by_name, by_id = ("a", ZERO_UUID), (None, made.topic_id)
    for asked in ((by_name, by_name), (by_id, by_id), (by_name, by_id)):
        (answer,) = admin.delete(*asked)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    (answer,) = admin.delete(("none", ZERO_UUID), ("none", ZERO_UUID))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "a" in admin.node.image.topics_by_name


def test_topics_are_deleted_by_name_and_by_id(admin: Admin) -> None:
    first, second = admin.create("a", "b")
    answers = admin.delete(("a", ZERO_UUID), (None, second.topic_id))
    assert [(t.name, t.topic_id, t.error_code) for t in answers] == [
        ("a", first.topic_id, 0),
        ("b", second.topic_id, 0),
    ]
    assert admin.node.image.topics_by_name == {}


def test_bad_deletions_get_their_own_errors(admin: Admin) -> None:
    (known,) = admin.create("a")
    cases = {
        ("a", known.topic_id): ErrorCode.INVALID_REQUEST,  # N026
        (None, ZERO_UUID): ErrorCode.INVALID_REQUEST,
        ("nosuch", ZERO_UUID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, b"x" * 16): ErrorCode.UNKNOWN_TOPIC_ID,  # N025
        ("__cluster_metadata", ZERO_UUID): ErrorCode.POLICY_VIOLATION,
        ("__remote_log_metadata", ZERO_UUID): ErrorCode.POLICY_VIOLATION,
    }
    answers = admin.delete(*cases)
    assert {(t.name, t.topic_id): t.error_code for t in answers} == cases
    assert list(admin.node.image.topics_by_name) == ["a"]


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    admin = Admin({"delete.topic.enable": "false"}, tmp_path)
    admin.create("a")
    (answer,) = admin.delete(("a", ZERO_UUID))
    assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert "a" in admin.node.image.topics_by_name


def test_the_guarded_topic_cannot_be_deleted_by_its_id(admin: Admin) -> None:
    from metadata_topic.controller.topic_specs import TopicSpec

    (made,) = asyncio.run(admin.creation.create([TopicSpec("__remote_log_metadata", 1, 1)]))
    assert made.error is None
    (answer,) = admin.delete((None, made.topic_id))
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_changed_settings_are_described_and_in_force(admin: Admin) -> None:
    admin.create("orders")
    changed = admin.alter(
        TOPIC,
        "orders",
        ("retention.ms", SET, "5000"),
        ("cleanup.policy", APPEND, "compact"),
        ("local.log.retention.ms", SET, "-2"),
    )
    assert (changed.error_code, changed.error_message) == (0, None)
    config = admin.live.log_config("orders")
    assert (config.retention_ms, config.cleanup_policy) == (5000, frozenset({"delete", "compact"}))
    described = admin.describe(TOPIC, "orders", "retention.ms", "local.retention.ms", "nosuch")
    assert {c.name: (c.value, c.config_source) for c in described.configs} == {
        "retention.ms": ("5000", 1),
        "local.retention.ms": ("-2", 1),
    }
    admin.alter(TOPIC, "orders", ("retention.ms", DELETE, None))
    (entry,) = admin.describe(TOPIC, "orders", "retention.ms").configs
    assert (entry.value, entry.config_source) == ("604800000", 5)
    assert [s.name for s in entry.synonyms] == [] or entry.synonyms[0].source in (4, 5)


def test_the_metadata_topic_of_the_tier_may_be_changed_to_keep_everything(admin: Admin) -> None:
    name = "__remote_log_metadata"
    forgets = {"cleanup.policy": "compact", "retention.ms": "1000"}
    configs = tuple(Config(key, value) for key, value in forgets.items())
    asyncio.run(admin.creation.create([TopicSpec(name, 1, 1, configs=configs)]))
    assert admin.alter(TOPIC, name, ("cleanup.policy", SET, "delete")).error_code == 0
    assert admin.alter(TOPIC, name, ("retention.ms", SET, "-1")).error_code == 0
    for change in (("cleanup.policy", SET, "compact"), ("cleanup.policy", APPEND, "compact")):
        assert admin.alter(TOPIC, name, change).error_code == ErrorCode.POLICY_VIOLATION
    kept = admin.live.log_config(name)
    assert (kept.cleanup_policy, kept.retention_ms) == (frozenset({"delete"}), -1)
    answer = admin.alter(TOPIC, "__cluster_metadata", ("cleanup.policy", SET, "delete"))
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


BAD_CHANGES = {
    "unknown topic": (TOPIC, "nosuch", ("retention.ms", SET, "1"), 3),
    "unknown key": (TOPIC, "orders", ("no.such", SET, "1"), 40),
    "wrong value": (TOPIC, "orders", ("retention.ms", SET, "soon"), 40),
    "append to no list": (TOPIC, "orders", ("retention.ms", APPEND, "1"), 40),
    "null": (TOPIC, "orders", ("retention.ms", SET, None), 42),
    "operation": (TOPIC, "orders", ("retention.ms", 9, "1"), 42),
    "read-only": (BROKER, "1", ("node.id", SET, "4"), 42),
    "other broker": (BROKER, "7", ("log.retention.ms", SET, "4"), 102),
    "resource type": (99, "x", ("a", SET, "b"), 42),
    "cluster": (TOPIC, "__cluster_metadata", ("retention.ms", SET, "1"), 44),
    "remote": (TOPIC, "__remote_log_metadata", ("retention.ms", SET, "1"), 44),
}


@pytest.mark.parametrize("row", BAD_CHANGES)
def test_bad_change(admin: Admin, row: str) -> None:
    admin.create("orders")
    before = admin.node.image.configs
    kind, name, change, code = BAD_CHANGES[row]
    answer = admin.alter(kind, name, change)
    assert answer.error_code == code
    assert answer.error_message
    assert admin.node.image.configs == before


def test_a_brokers_default_changes_for_all_topics_at_run_time(admin: Admin) -> None:
    admin.create("orders")
    assert admin.alter(BROKER, "", ("log.retention.ms", SET, "7000")).error_code == 0
    assert admin.live.log_config("orders").retention_ms == 7000
    assert admin.alter(BROKER, "1", ("log.retention.ms", SET, "9000")).error_code == 0
    assert admin.live.log_config("orders").retention_ms == 9000
    (entry,) = admin.describe(BROKER, "1", "log.retention.ms").configs
    assert (entry.value, entry.config_source) == ("9000", 2)
    (entry,) = admin.describe(BROKER, "", "log.retention.ms").configs
    assert (entry.value, entry.config_source) == ("7000", 3)


def test_what_cannot_be_described_gets_an_error(admin: Admin) -> None:
    assert admin.describe(TOPIC, "nosuch").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.describe(TOPIC, "no such").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert admin.describe(BROKER, "2").error_code == ErrorCode.INVALID_REQUEST
    assert admin.describe(99, "x").error_code == ErrorCode.INVALID_REQUEST


def test_a_metadata_request_creates_what_it_may(admin: Admin) -> None:
    topics = admin.metadata_of("fresh", "../../etc/x", "__remote_log_metadata", "fresh")
    assert [(t.name, t.error_code) for t in topics] == [
        ("fresh", 0),
        ("../../etc/x", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__remote_log_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [p.leader_id for p in topics[0].partitions] == [1, 1, 1]
    assert topics[0].topic_id == admin.node.image.topics_by_name["fresh"].id


def test_a_metadata_request_creates_nothing_where_it_may_not(admin: Admin) -> None:
    (topic,) = admin.metadata_of("fresh", allow_auto_topic_creation=False)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.node.image.topics_by_name == {}


def test_metadata_follows_the_image(admin: Admin) -> None:
    admin.create("a")
    assert len(admin.metadata_of("a")[0].partitions) == 1
    admin.delete(("a", ZERO_UUID))
    admin.create("a", num_partitions=2)
    assert len(admin.metadata_of("a")[0].partitions) == 2


def test_an_unknown_id_is_forgotten_only_where_it_is_wished_for(admin: Admin) -> None:
    unknown = b"u" * 16
    (answer,) = admin.delete((None, unknown))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert admin.node.image.removed_tiered_topics == {}
    assert admin.wish(unknown, 1).error_code == 0
    assert list(admin.node.image.removed_tiered_topics) == [unknown]
    assert admin.wish(unknown, 2).error_code == 0
    assert admin.node.image.removed_tiered_topics == {}
    assert admin.wish(unknown, 3).error_code == ErrorCode.INVALID_REQUEST


def test_an_id_that_exists_is_not_forgotten(admin: Admin) -> None:
    admin.create("t")
    topic_id = admin.node.image.topics_by_name["t"].id
    answer = admin.wish(topic_id, 1)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "t" in admin.node.image.topics_by_name
    assert admin.node.image.removed_tiered_topics == {}
