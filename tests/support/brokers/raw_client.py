"""A plain socket that speaks frames, for input that no client library would send."""

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from tests.support.brokers.process import BrokerProcess

PATIENCE_S = 20.0


class Closed(Exception):
    """The broker ended the connection."""


class RawClient:
    """One connection; use it in a `with` block."""

    def __init__(self, broker: BrokerProcess, port: int | None = None) -> None:
        """Connect to the listener for clients, or to another port."""
        self.socket = socket.create_connection(("127.0.0.1", port or broker.port), PATIENCE_S)
        self.address = self.socket.getsockname()
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError as error:
                raise Closed from error
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    def is_closed(self) -> bool:
        """Wait for the end of the connection; anything received instead is a failure."""
        try:
            data = self.socket.recv(1)
        except ConnectionResetError:
            return True
        return data == b""

    def ask(
        self,
        api_key: int,
        version: int,
        body: bytes | Mapping[str, Any],
        client_id: bytes = b"raw",
    ) -> Any:
        """Send one request and decode its response; a mapping is encoded first."""
        if not isinstance(body, bytes):
            message = codec.request(api_key)
            body = message.encode(build(message.cls, body), version)
        self.send_frame(header(api_key, version, self._correlation_id, client_id) + body)
        return self.answer(api_key, version)

    def answer(self, api_key: int, version: int) -> Any:
        frame = self.receive_frame()
        position = 4 + header_versions(api_key, version)[1]
        value, end = codec.response(api_key).decode(frame, version, position)
        assert end == len(frame), "bytes after the response"
        return value


def header(
    api_key: int, version: int, correlation_id: int = 0, client_id: bytes | None = b"raw"
) -> bytes:
    """A request header; the flexible one has an empty tagged section."""
    size = -1 if client_id is None else len(client_id)
    data = struct.pack(">hhih", api_key, version, correlation_id, size) + (client_id or b"")
    return data + (b"\0" if header_versions(api_key, version)[0] == 2 else b"")


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


def produce_fields(topic: str, records: Any, *, acks: int = -1, index: int = 0) -> dict[str, Any]:
    """A Produce request (version 3-12) of one partition."""
    return {
        "acks": acks,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": records}]}],
    }


def fetch_fields(topic: str, offset: int = 0, **partition: Any) -> dict[str, Any]:
    """A Fetch request (version 4-12) of one partition that does not wait."""
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | partition
    return {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 26,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }


@dataclass(frozen=True)
class Asked:
    """One partition of a Fetch of several."""

    topic: str
    partition: int
    offset: int = 0
    max_bytes: int = 1 << 20


def asked_topics(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """The topics of a Fetch request (version 4-12), in the order of `asked`."""
    return [
        {
            "topic": one.topic,
            "partitions": [
                {
                    "partition": one.partition,
                    "fetch_offset": one.offset,
                    "partition_max_bytes": one.max_bytes,
                }
            ],
        }
        for one in asked
    ]


def produce(client: RawClient, topic: str, records: Any, version: int = 9, **more: Any) -> Any:
    """The answer for one partition."""
    answer = client.ask(ApiKey.PRODUCE, version, produce_fields(topic, records, **more))
    return answer.responses[0].partition_responses[0]


def fetch(client: RawClient, topic: str, offset: int = 0, version: int = 11, **more: Any) -> Any:
    """The answer for one partition."""
    answer = client.ask(ApiKey.FETCH, version, fetch_fields(topic, offset, **more))
    return answer.responses[0].partitions[0]


def log_end(client: RawClient, topic: str) -> int:
    fields = {
        "replica_id": -1,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }
    return int(client.ask(ApiKey.LIST_OFFSETS, 7, fields).topics[0].partitions[0].offset)


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    fields = {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "configs": [
                    {"name": key.replace("_", "."), "value": value}
                    for key, value in configs.items()
                ],
            }
        ],
        "timeout_ms": 10_000,
    }
    code = client.ask(ApiKey.CREATE_TOPICS, 5, fields).topics[0].error_code
    assert code == 0, code
