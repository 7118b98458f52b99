"""Random admin requests at their size limits, with the broker's real rules, and a restart after
each hundred: the node always starts, and with the same image.

    TIDEMARK_ADMIN_FUZZ=50 pytest tests/simulation/test_metadata_admin_fuzz.py    # 50 x 5 restarts
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigType
from broker.config.keys import BROKER_KEYS, TOPIC_KEYS
from broker.config.live_config import LiveConfig
from kafka_protocol.errors import KafkaError
from metadata_topic.controller.brokers import fence_broker, register_broker, unfence_broker
from metadata_topic.controller.configs import incremental_alter_configs
from metadata_topic.controller.partitions import create_partitions
from metadata_topic.controller.producer_ids import allocate_producer_ids
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_deletion import delete_topics
from metadata_topic.controller.topic_specs import Config, TopicSpec
from metadata_topic.controller.topics import create_topics
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.model import Provenance
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.log.decision_batches import ContradictoryDecision, UnwritableDecision
from metadata_topic.quorum.node import MetadataNode, NodeIdentity
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from metadata_topic.raft.voters import VoterEndpoint
from tests.support.rounds import rounds
from tests.support.samples.metadata import registration_of
from tests.support.sim.ports import simulated
from tests.support.worlds.forgetful_disk import QuickDisk
from tests.support.worlds.one_node import looped, sole_voter

T = TypeVar("T")
ROUNDS = rounds("TIDEMARK_ADMIN_FUZZ", quick=1, full=2)
RESTARTS: Final = 5
REQUESTS: Final = 100
VALUE_MAX: Final = 32_767
TOPIC, BROKER = 2, 4
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}
CONFIG = MetadataLogConfig(
    segment_bytes=1 << 20,
    max_record_bytes_between_snapshots=3 << 20,
    max_retention_bytes=4 << 20,
    max_batch_bytes=150_000,
)

LISTS = [name for name, key in TOPIC_KEYS.items() if key.type is ConfigType.LIST]
BROKER_LISTS = [name for name, key in BROKER_KEYS.items() if key.type is ConfigType.LIST]
NUMBERS = ["0", "1", "-1", "-2", "9223372036854775807", "2147483647", "1000000", "0.5", "true"]


@dataclass(frozen=True)
class Change:
    name: str
    value: str | None
    config_operation: int


@dataclass(frozen=True)
class More:
    name: str
    count: int
    assignments: None = None


@dataclass(frozen=True)
class Resource:
    resource_type: int
    resource_name: str
    configs: Sequence[Change]


class Fuzz:
    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.ports = looped(simulated(seed, disk=QuickDisk()))
        self.image = EMPTY_IMAGE
        self.taken = 0
        self.refused: dict[str, int] = {}
        config, _ = BrokerConfig.load(SETTINGS | {"log.dirs": str(path)})
        self.live = LiveConfig(config, lambda: self.node.image)
        plan = FormatPlan("c", 1, (path,), path, VoterEndpoint("CONTROLLER", "localhost", 9093))
        self.directory_id = format_directory(
            plan, disk=self.ports.disk, clock=self.ports.clock, rng=self.ports.rng
        )[path]

    # -- rng

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.ports.rng.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.ports.rng.random() < probability

    def below(self, limit: int) -> int:
        return int(self.ports.rng.random() * limit)

    def name(self) -> str:
        size = self.pick([1, 3, 20, 249, 249, 250])
        return "".join(self.pick("abAB01._-") for _ in range(size))

    def known(self) -> str:
        names = list(self.node.image.topics_by_name)
        return self.pick(names) if names and self.chance(0.9) else self.name()

    def value(self, name: str) -> str:
        """Something for this key, often of the largest size that a request can carry."""
        size = self.pick([10, 1_000, 24_000, VALUE_MAX - 1, VALUE_MAX])
        if name in LISTS or name in BROKER_LISTS:
            if self.chance(0.1):
                return self.pick(["delete", "compact", "delete,compact", ""])
            if "throttled" in name:
                start = self.below(90_000)
                text = ",".join(f"{start + n}:1" for n in range(size // 8 + 1))
                return text[:size].rstrip(",:")
            word = self.pick(["x", "é", "\U0001f600", "a,"])
            return word * (size // len(word.encode()))
        if name in TOPIC_KEYS or name in BROKER_KEYS:
            return self.pick(NUMBERS)
        return "x" * size

    def key(self, kind: int) -> str:
        if self.chance(0.05):
            return "x" * self.pick([1, 300, VALUE_MAX])
        keys = [LISTS, list(TOPIC_KEYS)] if kind == TOPIC else [BROKER_LISTS, list(BROKER_KEYS)]
        return self.pick(self.pick(keys))

    # -- requests

    def create(self) -> Callable[[MetadataImage], ControllerResult[object]]:
        partitions = self.pick([1, 1, 1, 3, 50, 1_000, 10_000 if self.chance(0.2) else 2, 10_001])
        count = self.pick([1, 1, 5, 30]) if partitions < 10 else 1
        topics = []
        for _ in range(count):
            keys = {self.key(TOPIC) for _ in range(self.pick([0, 0, 1, 8]))}
            configs = tuple(Config(key, self.value(key)) for key in sorted(keys))
            topics.append(TopicSpec(self.name(), partitions, 1, configs=configs))
        ids = [self.ports.rng.uuid() for _ in topics]
        return lambda image: create_topics(
            image,
            topics,
            defaults=self.live.topic_defaults(),
            topic_ids=ids,
            validate_config=self.live.validate_new_topic,
        )

    def grow(self) -> Callable[[MetadataImage], ControllerResult[object]]:
        names = [self.known() for _ in range(self.pick([1, 1, 5]))]
        count = self.pick([1, 2, 4, 60, 1_001, 10_000 if self.chance(0.2) else 5, 2**31 - 1])
        asked = [More(name, count) for name in names]
        return lambda image: create_partitions(image, asked)

    def delete(self) -> Callable[[MetadataImage], ControllerResult[object]]:
        asked = [
            (self.known(), bytes(16))
            for _ in range(self.pick([1, 1, 2, 40 if self.chance(0.1) else 1]))
        ]
        return lambda image: delete_topics(image, list(dict.fromkeys(asked)))

    def alter(self) -> Callable[[MetadataImage], ControllerResult[object]]:
        resources = []
        for _ in range(self.pick([1, 1, 4])):
            kind = self.pick([TOPIC, TOPIC, BROKER, BROKER, 8])
            name = self.known() if kind == TOPIC else self.pick(["", "1", "2", "x" * 40_000])
            changes: list[Change] = []
            if kind in (TOPIC, BROKER) and self.chance(0.6):
                key = self.pick(LISTS if kind == TOPIC else BROKER_LISTS)
                changes.append(Change(key, self.value(key), self.pick([0, 2, 2, 2, 3])))
            for _ in range(0 if changes else self.pick([1, 1, 3, 10])):
                key, operation = self.key(kind), self.pick([0, 0, 1, 2, 2, 2, 3, 4])
                changes.append(Change(key, None if operation == 1 else self.value(key), operation))
            resources.append(Resource(kind, name, changes))
        replaces = self.chance(0.2)
        return lambda image: incremental_alter_configs(
            image, resources, rules=self.live, replaces=replaces
        )

    def broker(self) -> Callable[[MetadataImage], ControllerResult[object]]:
        if self.chance(0.5):
            life = registration_of(1, life=1 + self.below(200), rack=self.pick([None, "r" * 249]))
            return lambda image: register_broker(image, life)
        work = self.pick([unfence_broker, unfence_broker, fence_broker])
        return lambda i: work(i, broker_id=1, broker_epoch=i.brokers[1].epoch)

    def ids(self) -> Callable[[MetadataImage], ControllerResult[object]]:
        return lambda i: allocate_producer_ids(i, broker_id=1, broker_epoch=i.brokers[1].epoch)

    async def ask(self, decide: Callable[[MetadataImage], ControllerResult[object]]) -> object:
        end = self.node.log_end_offset
        try:
            answer = await self.node.submit(decide)
        except (UnwritableDecision, ContradictoryDecision):
            raise  # the controller has to refuse such a request by itself
        except KafkaError as error:
            assert self.node.log_end_offset == end
            self.refused[type(error).__name__] = self.refused.get(type(error).__name__, 0) + 1
            return None
        self.taken += self.node.log_end_offset > end
        return answer

    # -- lives

    async def life(self, work: Callable[[], Awaitable[None]], *, killed: bool) -> None:
        self.node = MetadataNode(
            self.path,
            NodeIdentity(node_id=1, cluster_id="c", directory_id=self.directory_id),
            self.ports,
            sole_voter(CONFIG),
        )
        await self.node.begin()
        if self.image is not EMPTY_IMAGE:
            assert comparable(self.node.image) == comparable(self.image)
        await work()
        assert self.node.failure is None
        self.image = self.node.image
        if not killed:
            await self.node.close()

    async def requests(self) -> None:
        registered = await self.ask(lambda image: register_broker(image, registration_of(1)))
        assert registered is not None
        await self.ask(lambda i: unfence_broker(i, broker_id=1, broker_epoch=i.brokers[1].epoch))
        makers = [self.create, self.delete, self.alter, self.alter, self.alter, self.alter]
        for _ in range(REQUESTS):
            self.ports.clock.advance(1_000)
            maker = self.pick([*makers, self.grow, self.broker, self.ids])
            await self.ask(maker())
            if self.chance(0.02):
                assert await self.node.snapshot() is not None


def comparable(image: MetadataImage) -> MetadataImage:
    """Without what each start changes: the epoch's own records, and who the controller is now."""
    return replace(image, provenance=Provenance(), controllers={})


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_requests_never_make_a_log_that_does_not_start(tmp_path: Path, seed: int) -> None:
    fuzz = Fuzz(tmp_path, seed)

    async def run() -> None:
        for n in range(RESTARTS):
            await fuzz.life(fuzz.requests, killed=n % 2 == 0)

        async def nothing() -> None:
            """Only start."""

        await fuzz.life(nothing, killed=False)

    asyncio.run(run())
    assert fuzz.taken > RESTARTS * 10, (fuzz.taken, fuzz.refused)
