"""Members of consumer groups as raw frames: thousands of them in one process, no library."""

import asyncio
import struct
import time
from typing import Any, Final

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions

SESSION_MS: Final = 120_000
REBALANCE_MS: Final = 60_000
VERSIONS: Final = {
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.OFFSET_COMMIT: 8,
}
NONE, MEMBER_ID_REQUIRED = 0, 79
LATER: Final = frozenset({14, 15, 16, 27})
"""Loading, not available, not the coordinator, rebalance in progress: asked again."""


class Connection(asyncio.Protocol):
    """One connection; answers come in the order of the requests."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bytes]] = []
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, bootstrap: str) -> "Connection":
        host, port = bootstrap.rsplit(":", 1)
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(cls, host, int(port))
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(exc or ConnectionResetError("the broker ended it"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + struct.unpack_from(">i", self._received)[0]
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self._waiting.pop(0).set_result(frame)

    def exchange(self, request: bytes) -> "asyncio.Future[bytes]":
        """Send a whole request; its answer comes without the length."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        assert self._transport is not None
        self._transport.write(request)
        return future

    async def ask(self, api: ApiKey, **fields: Any) -> Any:
        request = codec.request(api).cls(**fields)
        return answer(api, await self.exchange(frame(api, request)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def frame(api: ApiKey, body: Any) -> bytes:
    """A whole request with its length before it."""
    version = VERSIONS[api]
    head = struct.pack(">hhih", api, version, 0, 5) + b"bench"
    head += b"\0" * (header_versions(api, version)[0] == 2)
    text = head + codec.request(api).encode(body, version)
    return struct.pack(">i", len(text)) + text


def answer(api: ApiKey, data: bytes) -> Any:
    version = VERSIONS[api]
    return codec.response(api).decode(data, version, 4 + header_versions(api, version)[1])[0]


class Member:
    """One member of a classic group that wants one topic."""

    def __init__(self, group: str, topic: str, partitions: int, connection: Connection) -> None:
        self.group, self.topic, self.partitions = group, topic, partitions
        self.connection = connection
        self.id, self.generation, self.assigned = "", -1, b""

    async def join(self, *, size: int, note: bytes = b"") -> None:
        """Join, and again, until a generation of `size` members has its assignment.

        `note`: user data of the subscription; another one than before makes the group rebalance.
        """
        while True:
            joined = await self.connection.ask(
                ApiKey.JOIN_GROUP,
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.id,
                protocol_type="consumer",
                protocols=[_protocol(self.topic, note)],
            )
            self.id = joined.member_id or self.id
            if joined.error_code in (MEMBER_ID_REQUIRED, *LATER):
                continue
            assert joined.error_code == NONE, f"JoinGroup: {joined.error_code}"
            self.generation = joined.generation_id
            if await self._sync(joined) and await self._is_settled(joined, size):
                return

    async def _sync(self, joined: Any) -> bool:
        shares = []
        if joined.leader == self.id:
            ids = [member.member_id for member in joined.members]
            cls = codec.request(ApiKey.SYNC_GROUP).cls.Assignments
            shares = [
                cls(member_id=each, assignment=self._share(place, len(ids)))
                for place, each in enumerate(ids)
            ]
        synced = await self.connection.ask(
            ApiKey.SYNC_GROUP,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        if synced.error_code in LATER:
            return False
        assert synced.error_code == NONE, f"SyncGroup: {synced.error_code}"
        self.assigned = synced.assignment
        return True

    async def _is_settled(self, joined: Any, size: int) -> bool:
        """True if this generation has the whole group; else wait until it ends, return False."""
        if joined.leader == self.id and len(joined.members) == size:
            return True
        each = self.partitions // size
        if joined.leader != self.id and abs(len(self.assigned) - self._share_bytes(each)) <= 8:
            return True
        is_over = await self.heartbeat()
        while is_over == NONE:
            await asyncio.sleep(0.02)
            is_over = await self.heartbeat()
        return False

    def _share_bytes(self, partitions: int) -> int:
        return 2 + 4 + 2 + len(self.topic) + 4 + 4 * partitions + 4

    def _share(self, place: int, of: int) -> bytes:
        first, end = self.partitions * place // of, self.partitions * (place + 1) // of
        name = self.topic.encode()
        head = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", end - first)
        return head + struct.pack(f">{end - first}i", *range(first, end)) + struct.pack(">i", -1)

    async def heartbeat(self) -> int:
        data = await self.connection.exchange(self.heartbeat_frame())
        return int(answer(ApiKey.HEARTBEAT, data).error_code)

    def heartbeat_frame(self) -> bytes:
        cls = codec.request(ApiKey.HEARTBEAT).cls
        asked = cls(group_id=self.group, generation_id=self.generation, member_id=self.id)
        return frame(ApiKey.HEARTBEAT, asked)

    def commit_frame(self, offset: int, partitions: int) -> bytes:
        """A commit of the first `partitions` partitions."""
        cls = codec.request(ApiKey.OFFSET_COMMIT).cls
        parts = [
            cls.Topics.Partitions(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number in range(partitions)
        ]
        asked = cls(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[cls.Topics(name=self.topic, partitions=parts)],
        )
        return frame(ApiKey.OFFSET_COMMIT, asked)


def _protocol(topic: str, note: bytes) -> Any:
    name = topic.encode()
    metadata = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", len(note)) + note
    return codec.request(ApiKey.JOIN_GROUP).cls.Protocols(name="range", metadata=metadata)


async def make_topic(bootstrap: str, topic: str, partitions: int, deadline_s: float = 60) -> None:
    """Make a topic, and wait until a coordinator can be found, too."""
    connection = await Connection.open(bootstrap)
    cls = codec.request(ApiKey.CREATE_TOPICS).cls.Topics
    wanted = cls(name=topic, num_partitions=partitions, replication_factor=1)
    made = await connection.ask(ApiKey.CREATE_TOPICS, topics=[wanted], timeout_ms=60_000)
    assert made.topics[0].error_code == NONE, made.topics[0].error_message
    began = time.monotonic()
    while time.monotonic() - began < deadline_s:
        found = await connection.ask(
            ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["a-group"]
        )
        if found.coordinators[0].error_code == NONE:
            connection.close()
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"no coordinator after {deadline_s} s: {found.coordinators[0]}")
