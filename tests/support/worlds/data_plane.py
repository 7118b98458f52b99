"""Hosted partitions on a real disk, and handlers called as the network calls them."""

import asyncio
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from broker.network.authentication import NO_AUTHENTICATION, PlainAuthenticator, Session
from broker.network.registry import (
    KEPT_FRAME_BYTES,
    Handler,
    OrderedAnswer,
    RawHandler,
    RequestContext,
)
from broker.remote.config import TIER_PRINCIPAL
from broker.replica.followers import Leader
from broker.replica.hosting import ControllerRequests
from broker.replica.leading import Leading
from broker.replica.manager import ReplicaManager
from broker.replica.validation import ValidationTally
from kafka_protocol.records.records import Record, build_batch, iter_records
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire import codec
from local_log.config import LogConfig
from local_log.manager.log_dirs import LogManager
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, PartitionImage, TopicImage
from metadata_topic.image.sorted_map import SortedMap
from runtime.disk import Disk, FileRegion
from runtime.executors import InlinePool, Pool
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated

NODE = 1
NOW_MS = 1_700_000_000_000
LAG_MS = 30_000
HOLD_MS = 600_000


@dataclass
class World:
    """One broker's partitions. Topics are made by `add_topic`, all led by this broker."""

    directory: Path
    disk: Disk = field(default_factory=Disk)
    pool: Pool = field(default_factory=InlinePool)
    configs: dict[str, LogConfig] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    has_tier: bool = False
    node_id: int = NODE

    def __post_init__(self) -> None:
        ports = self.ports = simulated(7, clock=ManualClock(NOW_MS), disk=self.disk, pool=self.pool)
        self.clock, self.scheduler, self.rng = ports.clock, ports.scheduler, ports.rng
        self.metrics = ports.metrics
        self.validations = ValidationTally(self.clock)
        self.logs = LogManager([self.directory], self.config_for, ports)
        self.logs.load()
        self.brokers: dict[int, BrokerImage] = {}
        self.leading: Leading[Leader] = Leading(
            ports,
            image=lambda: self.image,
            broker_epoch=lambda: 7,
            lag_ms_max=lambda: LAG_MS,
            bootstrap_hold_ms=HOLD_MS,
        )
        self.replicas = ReplicaManager(
            logs=self.logs,
            node_id=self.node_id,
            config_for=self.config_for,
            ports=ports,
            validations=self.validations if self.has_tier else None,
            requests=ControllerRequests(leading=self.leading),
        )

    def config_for(self, topic: str) -> LogConfig:
        return self.configs.get(topic, LogConfig())

    def add_topic(
        self, name: str, partitions: int = 1, *, leader_epoch: int = 3, **config: Any
    ) -> bytes:
        """Make a topic; returns its id."""
        self.configs[name] = replace(LogConfig(), **config)
        topic_id = os.urandom(16)
        image = PartitionImage((NODE,), (NODE,), NODE, leader_epoch, 0)
        self.topics[name] = TopicImage(name, topic_id, dict.fromkeys(range(partitions), image))
        self.apply()
        return topic_id

    def change(self, name: str, index: int = 0, **values: Any) -> None:
        topic = self.topics[name]
        partitions = dict(topic.partitions)
        values.setdefault("partition_epoch", partitions[index].partition_epoch + 1)
        partitions[index] = structs.replace(partitions[index], **values)
        self.topics[name] = structs.replace(topic, partitions=partitions)
        self.apply()

    def apply(self) -> None:
        self.image = MetadataImage(
            brokers=SortedMap.of(self.brokers),
            topics_by_name=SortedMap.of(self.topics),
            topics_by_id=SortedMap.of({topic.id: topic for topic in self.topics.values()}),
        )
        self.replicas.apply(self.image, None)

    def log(self, topic: str, index: int = 0) -> Any:
        return self.replicas.require(topic, index).log

    def append(self, topic: str, *values: bytes, index: int = 0) -> None:
        """Append one batch."""
        self.replicas.partitions[TopicPartition(topic, index)].append(
            batch(*values), now_ms=self.clock.wall_ms()
        )


def batch(*values: bytes, **options: Any) -> bytearray:
    """A producer's batch; one record a value."""
    return build_batch([(NOW_MS, None, value, []) for value in values], **options)


def values_of(records: bytes) -> list[bytes | None]:
    """Values of all whole batches."""
    found: list[Record] = list(iter_records_of(records))
    return [record.value for record in found]


def iter_records_of(records: bytes) -> list[Record]:
    position, found = 0, []
    while position + 61 <= len(records):
        size = int.from_bytes(records[position + 8 : position + 12], "big") + 12
        if position + size > len(records):
            break
        found += list(iter_records(records, position))
        position += size
    return found


def context(
    api_key: int, version: int, client_id: str = "test", session: Session = NO_AUTHENTICATION
) -> RequestContext:
    peer = ("127.0.0.1", 9)
    return RequestContext(api_key, version, 1, client_id, "PLAINTEXT", peer, NOW_MS, session)


def of_tier() -> Session:
    """The session of a client that has authenticated itself as the tier's."""
    session = Session(PlainAuthenticator("tier", "token", TIER_PRINCIPAL))
    session.handshake("PLAIN")
    session.authenticate(b"\0tier\0token")
    return session


def start(
    handler: Handler,
    version: int,
    fields: Mapping[str, Any],
    client_id: str = "test",
    session: Session = NO_AUTHENTICATION,
) -> Any:
    """Call a handler as the network does; returns what it returned."""
    message = codec.request(handler.api_key)
    request = build(message.cls, fields)
    asked = context(handler.api_key, version, client_id, session)
    frame = bytearray(message.encode(request, version))
    if isinstance(handler, RawHandler):
        answer = handler.raw(asked, memoryview(frame), 0)
    else:
        answer = handler.handle(asked, message.decode(frame, version)[0])
    if isinstance(answer, OrderedAnswer):
        if len(frame) <= KEPT_FRAME_BYTES:
            frame[:] = bytes(len(frame))
        return _served(answer)
    frame[:] = bytes(len(frame))  # the network recycles it
    return answer


async def _served(in_turn: OrderedAnswer) -> Any:
    """As the network does it: it is counted first; what continues does so without its client."""
    if in_turn.count is not None:
        in_turn.count()
    serving = asyncio.ensure_future(in_turn.serve(in_turn))
    try:
        return await asyncio.shield(serving)
    except asyncio.CancelledError:
        if not in_turn.continues:
            serving.cancel()
        raise


def finish(handler: Handler, version: int, answer: Any) -> Any:
    """Decode a response, whatever form the handler gave it."""
    if answer is None:
        return None
    message = codec.response(handler.api_key)
    if isinstance(answer, list):
        data = b"".join(
            os.pread(part.file.fd, part.size_bytes, part.position)
            if isinstance(part, FileRegion)
            else bytes(part)
            for part in answer
        )
    else:
        data = message.encode(answer, version)
    value, end = message.decode(data, version)
    assert end == len(data)
    return value


def call(handler: Handler, version: int, fields: Mapping[str, Any], client_id: str = "test") -> Any:
    """Ask and wait for the answer, decoded."""

    async def wait() -> Any:
        answer = start(handler, version, fields, client_id)
        if inspect.isawaitable(answer):
            answer = await answer
        return finish(handler, version, answer)

    return asyncio.run(wait())


def build(cls: Any, fields: Mapping[str, Any]) -> Any:
    """A request struct from nested dicts."""
    made = {}
    for name, value in fields.items():
        nested = getattr(cls, "".join(word.capitalize() for word in name.split("_")), None)
        if nested is not None and isinstance(value, list) and value and isinstance(value[0], dict):
            made[name] = [build(nested, item) for item in value]
        elif nested is not None and isinstance(value, dict):
            made[name] = build(nested, value)
        else:
            made[name] = value
    return cls(**made)
