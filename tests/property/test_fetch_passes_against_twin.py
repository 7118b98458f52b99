"""A fetch that looks again at what changed answers as one that looks at all its partitions.

The same requests go to both kinds of handler over the same partitions; every answer must be the
same, byte for byte but for the session id, and must come at the same time.
"""

import asyncio
import inspect
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.replica.fetch_passes import FetchPasses
from broker.replica.fetch_session import FetchContext
from broker.replica.fetch_types import FetchParams
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.worlds.data_plane import World, batch, finish, start
from tests.support.worlds.fetch import ask
from tests.support.worlds.local_log import retain
from tests.support.worlds.pools import turns

pytestmark = pytest.mark.lasts(seconds=20)

TOPICS = ("a", "b", "c")
PARTITIONS = 4
ONE = len(batch(b"x"))


class Naive(FetchHandler):
    """Looks at all partitions each time."""

    def _looks(self, params: FetchParams, session: FetchContext) -> FetchPasses:
        return FetchPasses(session, few=1 << 30)


class Noting(FetchHandler):
    """Looks again only at what changed, however few partitions there are."""

    def _looks(self, params: FetchParams, session: FetchContext) -> FetchPasses:
        return FetchPasses(session, few=0)


class Sliced(Noting):
    """Takes iterations of the loop where it looks at more than two partitions."""

    slice_partitions = 2


class SlicedNaive(Naive):
    """The same, and looks at all each time: as for replicas."""

    slice_partitions = 2


KINDS = (Noting, Sliced, SlicedNaive)


class Client:
    """One consumer, whose requests go to both handlers."""

    def __init__(self, world: World, handlers: list[FetchHandler], rng: Random) -> None:
        self.world, self.handlers, self.rng = world, handlers, rng
        self.version = rng.choice((12, 13))
        self.read_committed = rng.random() < 0.5
        self.ids, self.epoch = [0, 0], 0
        self.offsets: dict[TopicPartition, int] = {}
        self.has_sessions = rng.random() < 0.8
        self.waiting: list[Any] | None = None
        self.is_first = True

    def _ends(self) -> dict[TopicPartition, int]:
        return {tp: p.log.log_end_offset for tp, p in self.world.replicas.partitions.items()}

    def _some(self) -> list[TopicPartition]:
        every = [TopicPartition(t, i) for t in TOPICS for i in range(PARTITIONS)]
        return self.rng.sample(every, self.rng.randrange(1, len(every)))

    def ask(self) -> None:
        rng, ends = self.rng, self._ends()
        if not self.has_sessions or rng.random() < 0.03:
            self.ids, self.epoch, self.is_first = [0, 0], 0 if self.has_sessions else -1, True
        forgotten: list[TopicPartition] = []
        if self.is_first:
            self.offsets = {tp: ends.get(tp, 0) for tp in self._some()}
            named = dict(self.offsets)
        else:
            named = {}
            for tp in [*self.offsets]:
                if rng.random() < 0.3:
                    named[tp] = max(0, ends.get(tp, 0) - rng.choice((0, 0, 0, 1, 3)))
            if rng.random() < 0.2:
                named |= {tp: ends.get(tp, 0) for tp in self._some()}
            if rng.random() < 0.1 and self.offsets:
                forgotten = [tp for tp in rng.sample([*self.offsets], 1) if tp not in named]
            self.offsets |= named
            for tp in forgotten:
                self.offsets.pop(tp, None)
        by_topic: dict[str, list[dict[str, Any]]] = {}
        size = rng.choice((10 * ONE, 10 * ONE, 2 * ONE, ONE // 2))
        for tp, offset in named.items():
            by_topic.setdefault(tp.topic, []).append(
                {"partition": tp.partition, "fetch_offset": offset, "partition_max_bytes": size}
            )
        gone: list[dict[str, Any]] = []
        for tp in forgotten:
            ident: dict[str, Any] = {"topic": tp.topic}
            if self.version >= 13:
                known = self.world.topics.get(tp.topic)
                ident = {"topic_id": known.id if known else b"?" * 16}
            gone.append(ident | {"partitions": [tp.partition]})
        more = {
            "max_wait_ms": rng.choice((0, 100, 1000)),
            "min_bytes": rng.choice((1, 1, 3 * ONE, 100 * ONE)),
            "max_bytes": rng.choice((2**31 - 1, 2**31 - 1, 5 * ONE, 2 * ONE)),
            "isolation_level": int(self.read_committed),
            "session_epoch": self.epoch,
            "forgotten_topics_data": gone,
        }
        self.waiting = []
        for handler, session_id in zip(self.handlers, self.ids, strict=True):
            fields = ask(self.world, self.version, *by_topic.items(), session_id=session_id, **more)
            self.waiting.append(begun(start(handler, self.version, fields)))

    async def settle(self) -> None:
        """Take the answers, if they are there: both, or none."""
        assert self.waiting is not None
        is_done = [not inspect.isawaitable(each) or each.done() for each in self.waiting]
        assert is_done[0] == is_done[1], "one of them still waits"
        if not is_done[0]:
            return
        answers = []
        for handler, each in zip(self.handlers, self.waiting, strict=True):
            raw = await each if inspect.isawaitable(each) else each
            answers.append(finish(handler, self.version, raw))
        self.ids = [answer.session_id for answer in answers]
        assert bool(self.ids[0]) == bool(self.ids[1])
        failed = bool(answers[0].error_code)
        for answer in answers:
            answer.session_id = 0
        message = codec.response(ApiKey.FETCH)
        mine, theirs = (message.encode(answer, self.version) for answer in answers)
        assert mine == theirs
        self.waiting = None
        self.is_first = failed or not self.ids[0]
        self.epoch = 0 if self.is_first else self.epoch + 1
        if self.is_first:
            self.ids = [0, 0]


def begun(answer: Any) -> Any:
    return asyncio.ensure_future(answer) if inspect.iscoroutine(answer) else answer


def _change(world: World, rng: Random) -> None:
    """Something happens in a partition."""
    tp = TopicPartition(rng.choice(TOPICS), rng.randrange(PARTITIONS))
    partition = world.replicas.partitions.get(tp)
    if partition is not None and partition.log.is_offline:
        partition = None
    event = rng.random()
    if tp.topic not in world.topics:
        if event < 0.3:
            world.add_topic(tp.topic, PARTITIONS)
    elif event < 0.75 and partition is not None and partition.is_leader:
        world.append(tp.topic, b"x" * rng.randrange(1, 3), index=tp.partition)
    elif event < 0.80 and partition is not None:
        log = partition.log
        log.raise_log_start(rng.randint(log.log_start_offset, log.high_watermark))
        partition.log_start_raised()
    elif event < 0.84 and partition is not None:
        log = partition.log
        log.set_config(log.config)
        log.roll(world.clock.wall_ms())
        log.raise_log_start(log.high_watermark)
        partition.log_start_raised()
        retain(log, world.clock.wall_ms())
    elif event < 0.88:
        epoch = world.topics[tp.topic].partitions[tp.partition].leader_epoch
        leader = rng.choice((1, 1, 2))
        world.change(tp.topic, tp.partition, leader=leader, replicas=(1, 2), leader_epoch=epoch + 1)
    elif event < 0.90:
        del world.topics[tp.topic]
        world.apply()
    elif event < 0.91 and partition is not None:
        partition.log.set_offline(OSError("the disk is broken"))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", KINDS)
async def test_every_answer_is_that_of_a_look_at_all(
    tmp_path: Path, seed: int, kind: type[FetchHandler]
) -> None:
    rng = Random(seed)
    world = World(tmp_path)
    for topic in TOPICS:
        world.add_topic(topic, PARTITIONS)
    limits = FetchLimits()
    handlers = [one(world.replicas, world.ports, limits=limits) for one in (kind, Naive)]
    clients = [Client(world, handlers, rng) for _ in range(3)]
    for _ in range(250):
        for client in clients:
            if client.waiting is None and rng.random() < 0.6:
                client.ask()
                await turns()
        for _ in range(rng.choice((0, 1, 1, 3))):
            _change(world, rng)
        if rng.random() < 0.15:
            world.scheduler.advance(rng.choice((50, 100, 1000)))
        await turns()
        for client in clients:
            if client.waiting is not None:
                await client.settle()
    await _end(world, clients)


async def _end(world: World, clients: list[Client]) -> None:
    world.scheduler.advance(2000)
    await turns()
    for client in clients:
        if client.waiting is not None:
            await client.settle()
        assert client.waiting is None
