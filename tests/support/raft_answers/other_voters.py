"""The other voters of a quorum as the recorder plays them: sockets that answer as they are told.

So one controller of Kafka can be brought into every role and held there.
"""

import asyncio
import struct
from dataclasses import dataclass
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.framing import read_request_header
from tests.support.brokers.raw_client import build

LEADER = 2
"""Whom the asked controller is told to follow; the others answer that they do not lead."""
SERVED = {
    ApiKey.FETCH: (4, 18),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.VOTE: (0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
}


@dataclass
class Manner:
    """How all of them answer; None: not at all, the asker waits.

    Attributes:
        pre_vote: grant it?
        vote: grant it?
        fetch_epoch: the first Fetch of this epoch gets an empty answer.
    """

    pre_vote: bool | None = None
    vote: bool | None = None
    fetch_epoch: int = -1


class OtherVoter:
    """One voter; all share a `Manner`."""

    def __init__(self, voter_id: int, manner: Manner) -> None:
        self.id = voter_id
        self.manner = manner
        self.port = 0
        self.fetched: list[dict[str, int]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        """End all connections: what waits for an answer is asked again."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header = read_request_header(frame)
                fields = self._answer(header.api_key, header.api_version, frame, header.body_offset)
                if fields is None:
                    continue
                version = header.api_version
                if header.api_key == ApiKey.FETCH:
                    await asyncio.sleep(0.1)  # not as fast as the asker could ask again
                message = codec.response(header.api_key)
                body = message.encode(build(message.cls, fields), version)
                head = struct.pack(">i", header.correlation_id)
                if header_versions(header.api_key, version)[1]:
                    head += b"\0"
                writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, key: int, version: int, frame: bytes, at: int) -> dict[str, Any] | None:
        if key == ApiKey.API_VERSIONS:
            keys = [
                {"api_key": int(k), "min_version": low, "max_version": high}
                for k, (low, high) in SERVED.items()
            ]
            return {"error_code": 0, "api_keys": keys}
        if key not in SERVED:
            return None
        asked, _ = codec.request(key).decode(frame, version, at)
        match key:
            case ApiKey.VOTE:
                return self._vote(asked)
            case ApiKey.BEGIN_QUORUM_EPOCH | ApiKey.END_QUORUM_EPOCH:
                return {"error_code": 0, "topics": [self._topic(asked.topics[0])]}
            case ApiKey.FETCH:
                return self._fetch(asked)
        return None

    def _vote(self, asked: Any) -> dict[str, Any] | None:
        partition = asked.topics[0].partitions[0]
        granted = self.manner.pre_vote if partition.pre_vote else self.manner.vote
        if granted is None:
            return None
        topic = {
            "topic_name": asked.topics[0].topic_name,
            "partitions": [
                {
                    "partition_index": 0,
                    "error_code": 0,
                    "leader_id": -1,
                    "leader_epoch": partition.replica_epoch,
                    "vote_granted": granted,
                }
            ],
        }
        return {"error_code": 0, "topics": [topic]}

    def _topic(self, topic: Any) -> dict[str, Any]:
        partition = topic.partitions[0]
        answer = {
            "partition_index": 0,
            "error_code": 0,
            "leader_id": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
        }
        return {"topic_name": topic.topic_name, "partitions": [answer]}

    def _fetch(self, asked: Any) -> dict[str, Any] | None:
        topic = asked.topics[0]
        partition = topic.partitions[0]
        self.fetched.append(
            {
                "epoch": partition.current_leader_epoch,
                "offset": partition.fetch_offset,
                "last_fetched_epoch": partition.last_fetched_epoch,
            }
        )
        error = ErrorCode.NONE
        if self.id != LEADER:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.current_leader_epoch == self.manner.fetch_epoch:
            self.manner.fetch_epoch = -1
        else:
            return None
        answer = {
            "partition_index": 0,
            "error_code": int(error),
            "high_watermark": -1,
            "last_stable_offset": -1,
            "log_start_offset": 0,
            "current_leader": {
                "leader_id": -1 if error else self.id,
                "leader_epoch": partition.current_leader_epoch,
            },
            "aborted_transactions": None,
            "records": b"",
        }
        responses = [{"topic_id": topic.topic_id, "partitions": [answer]}]
        return {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": responses}
