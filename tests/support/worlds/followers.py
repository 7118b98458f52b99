"""A leader, whose real handlers answer over a simulated network, and a broker that follows it.

    async with following(tmp_path) as pair:
        pair.leader.append("t", b"a")
        await pair.run(100)
        assert pair.follower.log("t").log_end_offset == 1

Time is the test's; only futures of the handlers need the event loop.
"""

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from typing import Any, cast

from broker.config.broker_config import BrokerConfig
from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.handlers.holding import Holding
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.network.registry import RawHandler, RequestContext
from broker.remote.tier import RemoteTier
from broker.replication.manager import ReplicaFetchers
from broker.replication.tier_bootstrap import AskState, TierBootstraps
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, Endpoint
from runtime.disk import FileRegion
from runtime.executors import InlinePool, Pool
from tests.support.kafka_client.node import framed, greeted
from tests.support.kafka_client.sim_network import SimNetwork
from tests.support.worlds.data_plane import NODE, NOW_MS, World
from tests.support.worlds.pools import HeldPool, turns

FOLLOWER = 2
ANSWER = response(ApiKey.FETCH)
Tamper = Callable[[Any], Any]
"""Changes a decoded answer to Fetch; None: no answer comes."""


class Served:
    """One connection to a leader, as its dispatcher serves it."""

    def __init__(self, side: "LeaderSide") -> None:
        self._side, self._received = side, bytearray()

    def received(self, data: bytes, answer: Callable[[bytes], None]) -> None:
        self._received += data
        while len(self._received) > 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._side.serve(frame, answer)


class Copies:
    """The leader's tier, as far as ListOffsets asks it: by what the logs were told is copied."""

    def __init__(self, world: World) -> None:
        self._world = world

    def earliest_pending_upload(self, tp: TopicPartition) -> int:
        log = self._world.log(tp.topic, tp.partition)
        return max(log.copied_through + 1, log.log_start_offset)


class LeaderSide:
    """What a leader answers, and what a test makes of it.

    Attributes:
        fetches: decoded requests, in their order.
        tamper: changes each answer to Fetch.
        cut: changes the bytes of its body.
        fetch, epochs: the handlers of Fetch and OffsetForLeaderEpoch.
        versions: of Fetch that are served.
        version: of the last request.
    """

    def __init__(self, world: World, tier: RemoteTier | None = None) -> None:
        """Answer for a broker; without a tier for what lies on its disk alone."""
        ports = world.ports
        self.fetches: list[Any] = []
        self.tamper: Tamper = lambda body: body
        self.cut: Callable[[bytes], bytes] = lambda data: data
        self.versions, self.version = (4, 18), -1
        holding = Holding(ports.clock, ports.scheduler)
        self.fetch = FetchHandler(world.replicas, ports, limits=FetchLimits(), remote=tier)
        self.epochs = OffsetForLeaderEpochHandler(world.replicas, holding)
        self._handlers = {
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: ListOffsetsHandler(
                world.replicas,
                clock=ports.clock,
                pool=ports.executors.reads,
                holding=holding,
                remote=tier or cast("RemoteTier", Copies(world)),
            ),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.epochs,
        }
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, frame: bytes, answer: Callable[[bytes], None]) -> None:
        header = read_request_header(frame)
        number = struct.pack(">i", header.correlation_id)
        if header.api_key == ApiKey.API_VERSIONS:
            apis = {
                ApiKey.FETCH: self.versions,
                ApiKey.LIST_OFFSETS: (1, 11),
                ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
            }
            answer(greeted(apis, header.correlation_id))
            return
        handler, version = self._handlers[ApiKey(header.api_key)], header.api_version
        asked, _ = request(ApiKey(header.api_key)).decode(frame, version, header.body_offset)
        if header.api_key == ApiKey.FETCH:
            self.fetches.append(asked)
            self.version = version
        context = RequestContext(header.api_key, version, 1, "f", "PLAINTEXT", ("", 0), NOW_MS)
        if isinstance(handler, RawHandler):
            made = handler.raw(context, memoryview(frame), header.body_offset)
        else:
            made = handler.handle(context, asked)

        def send(result: Any) -> None:
            body = self._body(ApiKey(header.api_key), version, result)
            if body is not None:
                is_flexible = response(ApiKey(header.api_key)).is_flexible(version)
                tags = b"\0" if is_flexible else b""
                answer(framed(number + tags + body))

        if isawaitable(made):

            async def later() -> None:
                send(await made)

            task = asyncio.ensure_future(later())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            send(made)

    def _body(self, api_key: ApiKey, version: int, result: Any) -> bytes | None:
        if api_key != ApiKey.FETCH:
            return bytes(response(api_key).encode(result, version))
        data = b"".join(
            os.pread(part.file.fd, part.size_bytes, part.position)
            if isinstance(part, FileRegion)
            else bytes(part)
            for part in result
        )
        changed = self.tamper(ANSWER.decode(data, version)[0])
        return None if changed is None else self.cut(bytes(ANSWER.encode(changed, version)))

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


@dataclass
class Pair:
    """See the module.

    Attributes:
        leaders: by broker id: partitions, and what is answered for them.
        image: where brokers listen.
        ask_tier: answers for the follower's tier.
    """

    directory: Path
    pool: Pool = field(default_factory=InlinePool)
    settings: dict[str, str] = field(default_factory=dict)
    broker_epoch: int = 11
    ask_tier: AskState = lambda *asked: None

    def __post_init__(self) -> None:
        self.follower = World(_made(self.directory / "f"), node_id=FOLLOWER, pool=self.pool)
        self.network = SimNetwork(self.follower.scheduler, self.follower.rng)
        self.image = MetadataImage()
        self.worlds: dict[int, World] = {}
        self.sides: dict[int, LeaderSide] = {}
        self.add_leader(NODE)
        self.leader, self.side = self.worlds[NODE], self.sides[NODE]
        self.config, _ = BrokerConfig.load({
            "process.roles": "broker",
            "node.id": str(FOLLOWER),
            "controller.quorum.bootstrap.servers": "localhost:1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "f"),
            **self.settings,
        })  # fmt: skip
        self.fetchers = ReplicaFetchers(
            lambda: self.config,
            image=lambda: self.image,
            broker_epoch=lambda: self.broker_epoch,
            bootstraps=TierBootstraps(
                lambda *asked: self.ask_tier(*asked),  # noqa: PLW0108 (a test replaces it)
                self.follower.logs,
                self.follower.ports,
            ),
            ports=self.follower.ports,
            network=self.network,
        )
        self.follower.replicas.listeners.append(self.fetchers.on_events)

    def add_leader(self, broker_id: int) -> World:
        world = World(_made(self.directory / str(broker_id)), node_id=broker_id)
        self.worlds[broker_id], self.sides[broker_id] = world, LeaderSide(world)
        self.listen(broker_id, ("leader", 9000 + broker_id))
        return world

    def listen(self, broker_id: int, address: tuple[str, int]) -> None:
        """A leader listens there, and the metadata say so."""
        side = self.sides[broker_id]
        self.network.nodes[address] = lambda: Served(side)
        endpoints = (Endpoint("PLAINTEXT", *address),)
        self.image.brokers[broker_id] = BrokerImage(broker_id, 1, bytes(16), endpoints)

    def add_topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        """A topic that the first leader leads, and the follower follows."""
        self.leader.add_topic(name, partitions, **config)
        self.follower.configs[name] = self.leader.configs[name]
        for index in range(partitions):
            self.leader.change(name, index, replicas=(*self.worlds, FOLLOWER))
        self.share(name)

    async def add_followed(
        self, name: str, *values: bytes, partitions: int = 1, ms: int = 200
    ) -> None:
        """Add a topic with a batch of each of these in its first log, and follow it for `ms`."""
        self.add_topic(name, partitions)
        for value in values:
            self.leader.append(name, value)
        await self.run(ms)

    def share(self, name: str) -> None:
        """What the metadata say of a topic is known to all."""
        for world in (*self.worlds.values(), self.follower):
            if world is not self.leader:
                world.configs[name] = self.leader.configs[name]
                world.topics[name] = self.leader.topics[name]
                world.apply()

    def change(self, name: str, index: int = 0, **values: Any) -> None:
        """The metadata say something else of a partition."""
        self.leader.change(name, index, **values)
        self.share(name)

    def delete(self, name: str) -> None:
        """The metadata do not have the topic any more."""
        for world in (*self.worlds.values(), self.follower):
            world.topics.pop(name, None)
            world.apply()

    async def run(self, ms: int, step_ms: int = 5) -> None:
        """Let time pass for all."""
        for _ in range(0, ms, step_ms):
            for world in (*self.worlds.values(), self.follower):
                world.scheduler.advance(step_ms)
            await turns(3)

    def logs_are_equal(self, name: str, index: int = 0, *, leader: int = NODE) -> bool:
        """Whether leader and follower hold the same bytes and the same epochs."""
        one, other = self.worlds[leader].log(name, index), self.follower.log(name, index)
        return bytes_of(one) == bytes_of(other) and (one.log_end_offset == other.log_end_offset)

    async def stop(self) -> None:
        if isinstance(self.pool, HeldPool):  # else a test that has failed waits for ever
            self.pool.stop_holding()
        await self.fetchers.stop()
        for side in self.sides.values():
            side.end()
        await turns()
        for world in (*self.worlds.values(), self.follower):
            await world.replicas.stop()
            world.logs.close()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def bytes_of(log: Any) -> bytes:
    """Everything in a log."""
    found = bytearray()
    for segment in log.segments.all:
        found += os.pread(segment.file.fd, segment.size_bytes, 0)
    return bytes(found)


def batches_in(records: Any) -> Iterator[tuple[int, int]]:
    """Position and size of each batch."""
    for position, header in iter_batches(bytes(records)):
        yield position, header.size_bytes


@asynccontextmanager
async def following(directory: Path, **more: Any) -> AsyncIterator[Pair]:
    pair = Pair(directory, **more)
    try:
        yield pair
    finally:
        await pair.stop()
