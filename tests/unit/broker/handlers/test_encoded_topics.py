"""Topics' parts of answers to Metadata that are kept encoded: always right, and there when asked.

Each answer is compared with that of a handler that keeps nothing yet.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

from broker.handlers import encoded_topics
from broker.handlers.encoded_topics import ENTRY_BYTES, kind_of
from broker.handlers.metadata import MetadataHandler
from broker.network.registry import RequestContext
from broker.topics.cluster import ClusterView, PartitionView
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.controller.brokers import register_broker
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import Endpoint
from metadata_topic.image.records import MetadataRecord, make
from runtime import work
from runtime.work import STEP_WORK, Pace, Steps, at_once
from tests.support.rounds import rounds
from tests.support.samples.metadata import apply, cluster_of, registration_of

VERSIONS: Final = range(14)
SINCE_OPERATIONS, SINCE_IDS = 8, 12
LISTENERS: Final = ("PLAINTEXT", "OTHER", "tier")
_Request: Final = request(ApiKey.METADATA).cls


class World:
    """A cluster of three brokers, and a handler that keeps what it encodes."""

    def __init__(self) -> None:
        self.image: MetadataImage = cluster_of(1, 2, 3)
        own = {"tier": Endpoint("tier", "127.0.0.1", 1, 2)}
        self.cluster = ClusterView(1, "c" * 22, lambda: self.image, own)
        self.handler = MetadataHandler(self.cluster, None)
        self._made = 0

    def apply(self, *records: MetadataRecord) -> None:
        self.image = apply(self.image, records)

    def create(self, name: str, partitions: int = 1) -> None:
        self._made += 1
        topic_id = self._made.to_bytes(16, "big")
        self.apply(
            make("TopicRecord", name=name, topic_id=topic_id),
            *(
                make(
                    "PartitionRecord",
                    1,
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[1, 2],
                    isr=[1, 2],
                    leader=1,
                    directories=[bytes([101]) * 16, bytes([102]) * 16],
                )
                for index in range(partitions)
            ),
        )

    def delete(self, name: str) -> None:
        self.apply(make("RemoveTopicRecord", topic_id=self.image.topics_by_name[name].id))

    def fence(self, broker_id: int, fenced: int) -> None:
        epoch = self.image.brokers[broker_id].epoch
        fields = {"broker_id": broker_id, "broker_epoch": epoch, "fenced": fenced}
        self.apply(make("BrokerRegistrationChangeRecord", 1, **fields))

    def steps(
        self,
        version: int,
        *,
        listener: str = "PLAINTEXT",
        operations: bool = False,
        topics: Sequence[Any] | None = None,
        handler: MetadataHandler | None = None,
    ) -> Steps[list[Any]]:
        context = RequestContext(ApiKey.METADATA, version, 0, "c", listener, ("127.0.0.1", 1), 0)
        asked = _Request(topics=topics, include_topic_authorized_operations=operations)
        return (handler or self.handler)._steps(context, asked, wants_all=topics is None)

    def ask(self, version: int, **fields: Any) -> bytes:
        return b"".join(at_once(self.steps(version, **fields)))

    def ask_anew(self, version: int, **fields: Any) -> bytes:
        return self.ask(version, handler=MetadataHandler(self.cluster, None), **fields)

    @property
    def kept_bytes(self) -> int:
        kept = self.handler._encoded
        assert kept.size_bytes == sum(one.size_bytes for one in kept._parts.values())
        return kept.size_bytes


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each partition that was encoded again."""
    seen: list[int] = []
    original = ClusterView.partition

    def partition(self: ClusterView, *args: Any, **fields: Any) -> PartitionView:
        seen.append(1)
        return original(self, *args, **fields)

    monkeypatch.setattr(ClusterView, "partition", partition)
    return seen


def test_each_topic_is_encoded_once_per_kind_for_any_number_of_clients(
    looked_at: list[int],
) -> None:
    world = World()
    for number in range(20):
        world.create(f"topic-{number}")
    kinds = set()
    for _ in range(3):
        for version in VERSIONS:
            for listener in LISTENERS:
                for operations in (False, True):
                    world.ask(version, listener=listener, operations=operations)
                    asked = operations and version >= SINCE_OPERATIONS
                    kinds.add(kind_of(listener, version, int(asked)))
    assert len(kinds) == 3 * (8 + 3)
    assert len(looked_at) == 20 * len(kinds)
    before = len(looked_at)
    world.create("another")
    world.apply(
        make("PartitionChangeRecord", 2, partition_id=0, topic_id=_id(world, "topic-3"), leader=2)
    )
    world.ask(12)
    assert len(looked_at) == before + 2  # the others are as they were


def test_where_there_is_no_room_what_is_kept_stays(
    monkeypatch: pytest.MonkeyPatch, looked_at: list[int]
) -> None:
    monkeypatch.setattr(encoded_topics, "BYTES_MAX", 10 * (ENTRY_BYTES + 100))
    world = World()
    for number in range(20):
        world.create(f"topic-{number}")
    for _ in range(3):
        looked_at.clear()
        assert world.ask(12) == world.ask_anew(12)
        assert world.kept_bytes <= encoded_topics.BYTES_MAX
    assert 10 <= len(world.handler._encoded) < 20
    assert len(looked_at) == 20 + 20 - len(world.handler._encoded)


def test_what_is_outdated_makes_room(monkeypatch: pytest.MonkeyPatch, looked_at: list[int]) -> None:
    monkeypatch.setattr(encoded_topics, "BYTES_MAX", 10 * (ENTRY_BYTES + 100))
    world = World()
    for number in range(20):
        world.create(f"gone-{number}")
    world.ask(12)
    for number in range(20):
        world.delete(f"gone-{number}")
    world.create("wide", partitions=60)  # more than two that are gone take
    world.ask(12)
    before = len(looked_at)
    world.ask(12)
    assert len(looked_at) == before


def test_a_topic_of_very_many_partitions_is_encoded_in_steps() -> None:
    world = World()
    world.create("wide", partitions=STEP_WORK)
    first = world.steps(12)
    assert sum(1 for _ in first) >= 5
    assert world.ask(12) == world.ask_anew(12)


@pytest.mark.parametrize("change", ["brokers", "topic"])
def test_what_changes_while_a_topic_is_encoded_is_not_kept(change: str) -> None:
    world = World()
    world.create("wide", partitions=STEP_WORK)
    encoding = world.steps(12)
    next(encoding)
    if change == "brokers":
        world.fence(2, 1)
    else:
        fields = {"partition_id": 0, "topic_id": _id(world, "wide"), "leader": 2}
        world.apply(make("PartitionChangeRecord", 2, **fields))
    at_once(encoding)
    assert len(world.handler._encoded) == 0
    assert world.ask(12) == world.ask_anew(12)


@pytest.mark.parametrize("listener", LISTENERS)
def test_versions_that_share_a_part_encode_it_alike(listener: str) -> None:
    world = World()
    world.create("topic", partitions=3)
    world.create("__consumer_offsets")
    world.fence(2, 1)
    images = list(world.image.topics_by_name.values())
    encoded: dict[Any, set[tuple[bytes, ...]]] = {}
    for version in VERSIONS:
        for operations in (0, 1):
            if operations and version < SINCE_OPERATIONS:
                continue
            kind = kind_of(listener, version, operations)
            handler = MetadataHandler(world.cluster, None)
            parts = tuple(at_once(handler._encode(one, version, kind, Pace())) for one in images)
            encoded.setdefault(kind, set()).add(parts)
    assert {len(one) for one in encoded.values()} == {1}


@pytest.mark.rounds(seconds=10)
def test_answers_after_any_change_equal_those_of_a_handler_without_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Changes also come between the steps of an answer; whoever has it then asks again."""
    monkeypatch.setattr(work, "STEP_WORK", 8)
    for seed in range(rounds("TIDEMARK_ENCODED_TOPICS_ROUNDS", quick=60, full=600)):
        print(f"seed={seed}")
        rng = random.Random(seed)
        bytes_max = rng.choice([3 * ENTRY_BYTES, 20 * ENTRY_BYTES, 1 << 20])
        monkeypatch.setattr(encoded_topics, "BYTES_MAX", bytes_max)
        _walk(World(), rng, bytes_max)


def _walk(world: World, rng: random.Random, bytes_max: int) -> None:
    lives = {1: 1, 2: 1, 3: 1}
    for _ in range(60):
        version = rng.choice(VERSIONS)
        asked: dict[str, Any] = {
            "listener": rng.choice(LISTENERS),
            "operations": rng.random() < 0.3,
            "topics": _asked(world, rng, version),
        }
        answering = world.steps(version, **asked)
        for _ in range(rng.randrange(4)):
            next(answering, None)
        _change(world, rng, lives)
        for _ in answering:
            pass
        assert world.ask(version, **asked) == world.ask_anew(version, **asked)
        assert world.kept_bytes <= bytes_max


def _asked(world: World, rng: random.Random, version: int) -> list[Any] | None:
    if rng.random() < 0.5:
        return None
    if version >= SINCE_IDS and rng.random() < 0.5:
        ids = [*world.image.topics_by_id, b"n" * 16]
        return [_Request.Topics(topic_id=rng.choice(ids), name=None) for _ in range(3)]
    return [_Request.Topics(name=f"t{rng.randrange(7)}") for _ in range(3)]


def _change(world: World, rng: random.Random, lives: dict[int, int]) -> None:
    names = list(world.image.topics_by_name)
    broker = rng.choice(list(lives))
    match rng.choice(["create", "create", "delete", "leader", "leader", "fence", "life", ""]):
        case "create":
            name = f"t{rng.randrange(6)}"
            if name not in names:
                world.create(name, rng.randrange(1, 4))
        case "delete" if names:
            world.delete(rng.choice(names))
        case "leader" if names:
            leader, isr = rng.choice([-1, 1, 2, 3]), rng.choice([[1], [1, 2]])
            fields = {"topic_id": _id(world, rng.choice(names)), "leader": leader, "isr": isr}
            world.apply(make("PartitionChangeRecord", 2, partition_id=0, **fields))
        case "fence":
            world.fence(broker, rng.choice([-1, 1]))
        case "life":
            lives[broker] += 1
            registration = registration_of(broker, life=lives[broker])
            world.apply(*register_broker(world.image, registration).records)


def _id(world: World, name: str) -> bytes:
    return world.image.topics_by_name[name].id
