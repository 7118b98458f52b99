"""FindCoordinator, and the making of `__consumer_offsets` that it begins."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.service import GroupCoordinator, java_hash, partition_of
from broker.handlers.find_coordinator import FindCoordinatorHandler
from broker.handlers.metadata import MetadataHandler
from broker.handlers.parts import Unserved
from broker.network.registry import RequestContext
from broker.topics.offsets_topic import OFFSETS_TOPIC, OffsetsTopic, offsets_topic_spec
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import NO_GROUP
from kafka_protocol.wire.codec import message
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import PartitionImage, TopicImage
from metadata_topic.image.sorted_map import SortedMap
from runtime.work import STEP_WORK
from tests.support.samples.config import load_entries
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.admin import Admin
from tidemark.embedded import clients

ONE_REPLICA = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "5"}
SINCE_SEVERAL = 4


class Asked:
    """The handler over an image in memory."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.admin = Admin(settings, directory)
        config = load_entries(dict(settings))
        self.topic = OffsetsTopic(lambda: self.admin.node.image, self.admin.own_topics, config)
        self.admin.own_topics.internal[OFFSETS_TOPIC] = lambda: offsets_topic_spec(config)
        ports = simulated(7, clock=ManualClock())
        coordinator = GroupCoordinator(self.topic, config, ports)
        self.handler = FindCoordinatorHandler(coordinator, self.admin.cluster, Unserved())

    def find(self, *keys: str, version: int = 4, key_type: int = 0) -> list[Any]:
        cls = message("FindCoordinatorRequest").cls
        if version < SINCE_SEVERAL:
            request = cls(key=keys[0], key_type=key_type)
            return [self.admin.ask(self.handler, request, version)]
        request = cls(key_type=key_type, coordinator_keys=list(keys))
        return list(self.admin.ask(self.handler, request, version).coordinators)

    @property
    def image(self) -> Any:
        return self.admin.node.image


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path, ONE_REPLICA)


@pytest.mark.parametrize("version", range(7))
def test_the_first_request_creates_the_topic_with_the_broker_settings(
    asked: Asked, version: int
) -> None:
    asked.find("g", version=version)
    topic = asked.image.topics_by_name[OFFSETS_TOPIC]
    assert len(topic.partitions) == 5
    assert asked.image.topic_config(OFFSETS_TOPIC) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_who_names_no_group_makes_no_topic(asked: Asked) -> None:
    [found] = asked.find(NO_GROUP)
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, asked.admin.cluster.node_id)
    assert OFFSETS_TOPIC not in asked.image.topics_by_name
    asked.find(NO_GROUP, "g")
    assert OFFSETS_TOPIC in asked.image.topics_by_name


def test_consumers_of_a_test_suite_without_a_group_name_none_either() -> None:
    assert clients._GROUPLESS == NO_GROUP, "written twice: a test process imports nothing of ours"


def test_it_is_made_once(asked: Asked) -> None:
    asked.find("g")
    before = asked.admin.node.record_count
    asked.find("g", "h")
    assert asked.admin.node.record_count == before


def test_a_topic_that_is_there_counts_whatever_the_settings_say(asked: Asked) -> None:
    asked.admin.create(OFFSETS_TOPIC, num_partitions=2)
    asked.find("g")
    assert asked.topic.partition_count == 2


def test_the_leader_of_the_groups_partition_is_told(asked: Asked) -> None:
    _lead_all(asked)
    for answer, key in zip(asked.find("g", ""), ("g", ""), strict=True):
        assert (answer.key, answer.error_code) == (key, 0)
        assert (answer.node_id, answer.host, answer.port) == (1, "127.0.0.1", 9092)
    [single] = asked.find("g", version=3)
    assert (single.node_id, single.error_code, single.error_message) == (1, 0, "NONE")


@pytest.mark.parametrize("key_type", [0, 1, 2, 7])
async def test_very_many_keys_are_answered_in_steps_as_each_by_itself(
    tmp_path: Path, key_type: int
) -> None:
    """The brokers are looked through once, not for each key."""
    asked = await asyncio.to_thread(Asked, tmp_path, ONE_REPLICA)
    await asyncio.to_thread(_lead_all, asked)
    keys = [f"g{number}" for number in range(STEP_WORK)] * 2
    request = message("FindCoordinatorRequest").cls(key_type=key_type, coordinator_keys=keys)
    context = RequestContext(10, 4, 1, "test", "PLAINTEXT", ("127.0.0.1", 1), 0)
    images = 0

    def image() -> MetadataImage:
        nonlocal images
        images += 1
        return asked.admin.node.image

    asked.handler._cluster = replace(asked.admin.cluster, image=image)
    answering = asyncio.ensure_future(asked.handler.handle(context, request))
    turns = 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 4
    assert images < 10
    encoded = b"".join(await answering)
    answers = message("FindCoordinatorResponse").decode(encoded, 4)[0].coordinators
    assert [one.key for one in answers] == keys
    for key in keys[:20]:
        found = await asyncio.to_thread(asked.find, key, key_type=key_type)
        assert [one for one in answers if one.key == key] == found * 2


def _lead_all(asked: Asked) -> None:
    asked.find("g")
    topic = asked.image.topics_by_name[OFFSETS_TOPIC]
    assert all(one.leader == 1 for one in topic.partitions.values())


def test_too_few_brokers_for_its_replicas_is_said_once_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(tmp_path, {})  # three replicas, as is Kafka's default
    for _ in range(3):
        [answer] = asked.find("g")
        assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert "offsets.topic.replication.factor=3" in caplog.text
    assert "set it to 1" in caplog.text


def test_a_metadata_log_that_takes_nothing_lets_clients_ask_again(asked: Asked) -> None:
    asked.admin.node.broken = ApiError(ErrorCode.REQUEST_TIMED_OUT, "not in time")
    assert asked.find("g")[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    asked.admin.node.broken = None
    assert asked.find("g")[0].error_code == 0


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (2, ErrorCode.INVALID_REQUEST),
        (7, ErrorCode.INVALID_REQUEST),
        (-1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_served_is_refused_with_a_reason_and_makes_no_topic(
    asked: Asked, version: int, key_type: int, code: ErrorCode
) -> None:
    [answer] = asked.find("x", version=version, key_type=key_type)
    assert (answer.error_code, answer.node_id) == (code, -1)
    assert answer.error_message
    assert not asked.topic.exists


def test_a_metadata_request_that_names_the_topic_makes_the_same(asked: Asked) -> None:
    handler = MetadataHandler(asked.admin.cluster, asked.admin.own_topics.auto_create)
    cls = message("MetadataRequest").cls
    wanted = cls.Topics(name=OFFSETS_TOPIC)
    [topic] = asked.admin.ask(handler, cls(topics=[wanted], allow_auto_topic_creation=True)).topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 5)
    assert asked.image.topic_config(OFFSETS_TOPIC)["cleanup.policy"] == "compact"


def test_groups_stay_where_they_are_when_the_topic_grows() -> None:
    """As in Kafka: each partition has the groups that have their offsets in it."""
    images = [MetadataImage()]
    one = PartitionImage((1,), (1,), 1, 0, 0)
    for topic_id, size in ((b"a" * 16, 7), (b"a" * 16, 9), (b"b" * 16, 3)):
        made = TopicImage(OFFSETS_TOPIC, topic_id, dict.fromkeys(range(size), one))
        images.append(MetadataImage(topics_by_name=SortedMap.of({OFFSETS_TOPIC: made})))

    config = load_entries({"offsets.topic.num.partitions": "5"})
    seen: list[MetadataImage] = []
    topic = OffsetsTopic(lambda: seen[-1], None, config)  # type: ignore[arg-type]
    counts = []
    for image in images:
        seen.append(image)
        counts.append(topic.partition_count)
    assert counts == [5, 7, 7, 3]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("gruppe-ä", 673522898),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_that_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("group", ["", "a", "group", "polygenelubricants", "ünï", "😀"])
def test_a_partition_is_one_of_the_topic(group: str, count: int) -> None:
    assert 0 <= partition_of(group, count) < count


def test_the_smallest_hash_is_taken_for_zero() -> None:
    assert partition_of("polygenelubricants", 50) == 0
