"""The client side of the controllers' benchmark: prepared frames, and the first answer to them."""

import asyncio
import struct
import time
from collections.abc import Iterable
from typing import Any, Final, NoReturn, Self

from benchmarks.group_members import Connection
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.wire.peers import call_of
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.messages import FetchRequest, VoteRequest
from metadata_topic.raft.voters import ReplicaKey
from tests.support.brokers.raw_client import build, header
from tests.support.quorum.controllers import CLUSTER_ID, Controller
from tests.support.quorum.node_connection import NO_ANSWER, VERSIONS, NodeConnection
from tests.support.quorum.quorum import Quorum

ALTER: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS
FIRST_ANSWER_S: Final = 180.0
_AGAIN_S: Final = 0.005
_ANSWER_S: Final = 5.0
_PING_S: Final = 0.01
_CORRELATION_END: Final = 4


def altered(topic: str, name: str, value: str) -> dict[str, Any]:
    """The fields of a request that sets one config of one topic."""
    configs = [{"name": name, "config_operation": 0, "value": value}]
    resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
    return {"resources": [resource]}


def frame(api: ApiKey, fields: dict[str, Any]) -> bytes:
    """A whole request, its size first."""
    message, version = codec.request(api), VERSIONS[api]
    text = header(api, version) + message.encode(build(message.cls, fields), version)
    return struct.pack(">i", len(text)) + text


async def create_topics(talk: NodeConnection, names: Iterable[str], partitions: int) -> None:
    """Create topics of one replica in one request."""
    topics = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1} for name in names
    ]
    fields = {"topics": topics, "timeout_ms": 60_000}
    answer = await talk.ask(ApiKey.CREATE_TOPICS, fields, timeout_s=90)
    for one in answer.topics:
        assert one.error_code == ErrorCode.NONE, (one.name, one.error_code, one.error_message)


class Changer:
    """One connection with one change under way: a topic's config, always another value."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._frames = [
            frame(ALTER, altered(topic, "retention.ms", str(1_000_000 + number)))
            for number in range(2)
        ]
        self._turn = 0
        self._good = b""

    async def change(self) -> None:
        """One committed change; fails if it is refused."""
        self._turn ^= 1
        said = (await self._connection.exchange(self._frames[self._turn]))[_CORRELATION_END:]
        if said == self._good:
            return
        version = VERSIONS[ALTER]
        position = header_versions(ALTER, version)[1]
        answer = codec.response(ALTER).decode(said, version, position)[0]
        assert answer.responses[0].error_code == ErrorCode.NONE, answer
        self._good = said

    def close(self) -> None:
        self._connection.close()


async def committing(changers: list[Changer], seconds: float) -> list[float]:
    """Change without a pause on all of them; the waits in seconds."""
    end, waits = time.perf_counter() + seconds, list[float]()

    async def work(changer: Changer) -> None:
        while (began := time.perf_counter()) < end:
            await changer.change()
            waits.append(time.perf_counter() - began)

    await asyncio.gather(*(work(one) for one in changers))
    return waits


async def first_change(quorum: Quorum, node_ids: Iterable[int], topic: str) -> int:
    """Ask all of these for a change, again and again; the first that carries one out."""

    async def ask(node_id: int) -> int:
        talk, number = quorum.talk(node_id), 0
        while True:
            number += 1
            value = str(2_000_000 + node_id * 100_000 + number)
            try:
                fields = altered(topic, "retention.ms", value)
                answer = await talk.ask(ALTER, fields, timeout_s=_ANSWER_S)
            except NO_ANSWER:
                pass
            else:
                if answer.responses[0].error_code == ErrorCode.NONE:
                    return node_id
            await asyncio.sleep(_AGAIN_S)

    asking = [asyncio.create_task(ask(one)) for one in node_ids]
    try:
        async with asyncio.timeout(FIRST_ANSWER_S):
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()
    finally:
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


class Pings:
    """Votes and Fetches of an old epoch to one controller: answered by its loop, changing nothing.

    Attributes:
        first_s: From the beginning to the first answer; infinite without one.
        longest_s: Longest wait for an answer since then.
        count: Answers.
    """

    def __init__(self, controller: Controller) -> None:
        identity, key = WireIdentity(CLUSTER_ID, "CONTROLLER"), ReplicaKey(9, bytes(15) + b"\x09")
        voter = ReplicaKey(controller.node_id)
        vote = VoteRequest(0, key, voter, 0, 0, pre_vote=True)
        fetch = FetchRequest(key, 0, 0, 0, max_wait_ms=0)
        self._frames = [
            call_of(vote, identity, lambda _: None, 0).frame(Versions(2, 2), 0, b"bench"),
            call_of(fetch, identity, lambda _: None, 0).frame(Versions(17, 17), 0, b"bench"),
        ]
        self._port = controller.port
        self._task: asyncio.Task[NoReturn] | None = None
        self._sent = 0.0
        self.has_answered = asyncio.Event()
        self.first_s = float("inf")
        self.longest_s = 0.0
        self.count = 0

    async def __aenter__(self) -> Self:
        self._began = time.perf_counter()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        if self.count and self._sent:
            self.longest_s = max(self.longest_s, time.perf_counter() - self._sent)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> NoReturn:
        while True:
            try:
                await self._connected()
            except OSError:
                await asyncio.sleep(_PING_S)

    async def _connected(self) -> NoReturn:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while True:
                for one in self._frames:
                    self._sent = time.perf_counter()
                    writer.write(one)
                    try:
                        (size,) = struct.unpack(">i", await reader.readexactly(4))
                        await reader.readexactly(size)
                    except asyncio.IncompleteReadError as error:
                        raise ConnectionResetError from error
                    self._answered()
                await asyncio.sleep(_PING_S)
        finally:
            writer.transport.abort()

    def _answered(self) -> None:
        now, sent, self._sent = time.perf_counter(), self._sent, 0.0
        if self.count:
            self.longest_s = max(self.longest_s, now - sent)
        else:
            self.first_s = now - self._began
            self.has_answered.set()
        self.count += 1
