"""Brokers A and B, the metadata as the test says them, one store and one metadata topic.

    async with tiered(tmp_path) as world:
        world.create(leader="A", followers="B")
        await world.say("A", "m0", "m1")
        world.roll("A")
        await world.copied()
        world.expect(...)

Everything that a broker does is the product's: its log, its fetchers, its handlers, its tier. The
test is the controller, and says when segments are closed and which local ones have expired.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from local_log.config import LogConfig
from metadata_topic.image.model import BrokerImage, PartitionImage, TopicImage
from tests.support.kafka_client.sim_network import Served
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tiered_world.broker import PARTITION, TieredBroker
from tests.support.tiered_world.letters import check_letters
from tests.support.tiered_world.table import shown, table
from tests.support.worlds.data_plane import batch, finish, start
from tests.support.worlds.pools import turns

FETCH, EPOCHS = 12, 4
STEP_MS = 5
PATIENCE_MS = 60_000
T = TypeVar("T")


class TieredWorld:
    """See the module.

    Attributes:
        a, b: the brokers.
        topics, configs, brokers: the metadata.
        listeners: what answers at an address.
        cut: addresses of lives that have ended.
        passed_ms: since the beginning.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.store = directory, directory / "store"
        self.metadata_topic = MemoryTopic(1)
        self.topics: dict[str, TopicImage] = {}
        self.configs: dict[str, LogConfig] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.listeners: dict[Address, Callable[[], Served]] = {}
        self.cut: set[Address] = set()
        self.passed_ms = 0
        self._stable = 0
        self.a, self.b = TieredBroker(self, 1, "A"), TieredBroker(self, 2, "B")

    def broker(self, name: str) -> TieredBroker:
        return {"A": self.a, "B": self.b}[name]

    @property
    def up(self) -> list[TieredBroker]:
        return [one for one in (self.a, self.b) if one.is_up]

    # -- time

    async def run(self, ms: int) -> None:
        """Let time pass for all."""
        for _ in range(0, ms, STEP_MS):
            self.passed_ms += STEP_MS
            for one in self.up:
                one.step(STEP_MS)
            await turns(4)
            self._check()

    def _check(self) -> None:
        for one in self.up:
            check_letters(one, self._stable)
            if one.partition is not None and one.partition.is_leader:
                self._stable = max(self._stable, one.log.last_stable_offset)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(0, PATIENCE_MS, 50):
            if condition():
                return
            await self.run(50)
        raise AssertionError(f"not within {PATIENCE_MS} ms: {what}")

    async def driven(self, answer: Awaitable[T]) -> T:
        """Let time pass until there is an answer."""
        future = asyncio.ensure_future(answer)
        await self.until(future.done, "an answer")
        return future.result()

    # -- the controller

    async def start(self, name: str) -> None:
        """Begin a life of a broker."""
        one = self.broker(name)
        one.begin()
        await self.driven(one.tier.start())
        await self.driven(one.tier.connect({"bootstrap.servers": "here:1"}))
        self._apply()
        await self.run(300)

    def create(self, *, leader: str, replicas: str = "AB", **config: Any) -> None:
        """Make the topic, under leader epoch 0."""
        ids = tuple(self.broker(name).id for name in replicas)
        defaults = {"remote_storage_enable": True, "unclean_leader_election_enable": True}
        self.configs["t"] = replace(LogConfig(), **{**defaults, **config})
        image = PartitionImage(ids, ids, self.broker(leader).id, 0, 0)
        self.topics["t"] = TopicImage("t", PARTITION.topic_id, {0: image})
        self._apply()

    def change(self, **values: Any) -> None:
        """The metadata say something else of the partition."""
        topic = self.topics["t"]
        image = topic.partitions[0]
        values.setdefault("partition_epoch", image.partition_epoch + 1)
        self.topics["t"] = structs.replace(topic, partitions={0: structs.replace(image, **values)})
        self._apply()

    def elect(self, name: str, epoch: int, *, isr: str, is_unclean: bool = False) -> None:
        """A broker leads from here on."""
        more: dict[str, Any] = {}
        if is_unclean:
            self._stable = 0
            more = {"unclean_epoch": epoch, "leader_recovery_state": 1}
        ids = tuple(self.broker(one).id for one in isr)
        self.change(leader=self.broker(name).id, leader_epoch=epoch, isr=ids, **more)

    def _apply(self) -> None:
        for one in self.up:
            one.world.apply()
            one.fetchers.on_image(one.world.image, None)

    @contextmanager
    def out_of_reach(self, name: str) -> Iterator[None]:
        """The other broker cannot fetch from this one."""
        address = self.broker(name).address
        listener = self.listeners.pop(address)
        self.cut.add(address)
        yield
        self.cut.discard(address)
        self.listeners[address] = listener

    # -- what happens to the log

    async def say(self, name: str, *values: str) -> None:
        """Have records appended at a leader, each in a batch of its own."""
        for value in values:
            world = self.broker(name).world
            partition = world.replicas.require("t", 0)
            partition.append(batch(value.encode()), now_ms=world.clock.wall_ms())
        await self.run(50)

    def roll(self, names: str) -> None:
        """Close the active segment, here and there."""
        for name in names:
            self.broker(name).log.roll()

    async def copied(self) -> None:
        """Let the tiers do all that is due, and all replicas hear of it."""
        for one in self.up:
            await self.driven(one.tier.run_passes())
        await self.run(1_500)

    def expire(self, name: str, start: int) -> None:
        """Local retention takes what lies below `start`, as far as it may."""
        log, world = self.broker(name).log, self.broker(name).world
        kept = sum(one.size_bytes for one in log.segments.all if one.base_offset >= start)
        log.set_config(replace(log.config, local_retention_bytes=max(kept, 1)))
        log.hold.end()
        world.logs.retention.run([log], world.clock.wall_ms())
        log.set_config(self.configs["t"])
        assert log.local_log_start_offset == start

    def expect(self, state: str) -> None:
        """All is as this table says."""
        assert table(self) == state

    def objects(self) -> int:
        """How many segments lie in the store, whatever is known of them."""
        return len([*self.store.rglob("*.log")])

    # -- questions of consumers

    async def fetch(
        self, name: str, offset: int, epoch: int = -1, *, leader_epoch: int = -1
    ) -> str:
        """Fetch, with the epoch of the record before if it is given (KIP-320, KIP-595).

        Args:
            name: of the broker.
            offset: of the record that is wanted.
            epoch: under which the consumer believes that it fetches.
            leader_epoch: whose leader it believes to ask.
        """
        one = {
            "partition": 0, "fetch_offset": offset, "last_fetched_epoch": epoch,
            "current_leader_epoch": leader_epoch, "partition_max_bytes": 1,
        }  # fmt: skip
        fields = {
            "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1,
            "topics": [{"topic": "t", "partitions": [one]}],
        }  # fmt: skip
        found = await self._asked(self.broker(name).side.fetch, FETCH, fields)
        answer = found.responses[0].partitions[0]
        if answer.error_code:
            return ErrorCode.of(answer.error_code).name
        if answer.diverging_epoch.epoch >= 0:
            left = answer.diverging_epoch
            return f"diverges: epoch {left.epoch} ends at {left.end_offset}"
        return " ".join(shown(bytes(answer.records or b""))) or "nothing"

    async def epoch_end(self, name: str, epoch: int) -> str:
        """Where an epoch ends, by OffsetForLeaderEpoch."""
        one = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [one]}]}
        found = await self._asked(self.broker(name).side.epochs, EPOCHS, fields)
        answer = found.topics[0].partitions[0]
        if answer.error_code:
            return ErrorCode.of(answer.error_code).name
        return f"epoch {answer.leader_epoch} ends at {answer.end_offset}"

    async def _asked(self, handler: Any, version: int, fields: dict[str, Any]) -> Any:
        answer = start(handler, version, fields)
        if isawaitable(answer):
            answer = await self.driven(answer)
        return finish(handler, version, answer)

    async def stop(self) -> None:
        for one in self.up:
            await one.kill()


@asynccontextmanager
async def tiered(directory: Path) -> AsyncIterator[TieredWorld]:
    """See the module; both brokers run."""
    world = TieredWorld(directory)
    try:
        for name in "AB":
            await world.start(name)
        yield world
    finally:
        await world.stop()
