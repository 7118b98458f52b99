"""A listener that describes a quorum as a test says; real sockets and frames."""

import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.framing import read_request_header
from kafka_protocol.wire.primitives import uuid_from_text
from metadata_topic.quorum.wire.rpc import TOPIC
from tests.support.brokers.raw_client import build

CLUSTER_ID = "tidemarkPeerClusterId0"
CONTROLLER_APIS = {ApiKey.API_VERSIONS: 4, ApiKey.DESCRIBE_QUORUM: 2, ApiKey.DESCRIBE_CLUSTER: 2}
BROKER_APIS = CONTROLLER_APIS | {ApiKey.METADATA: 12}
Replica = tuple[int, str, int, int, int]
"""id, directory id as text, log end offset, last fetch, last caught up."""


@dataclass(frozen=True)
class Quorum:
    """What a leader says.

    Attributes:
        nodes: ids with listeners (name, host, port).
    """

    voters: tuple[Replica, ...]
    observers: tuple[Replica, ...] = ()
    nodes: Mapping[int, tuple[tuple[str, str, int], ...]] = field(default_factory=dict)
    leader_id: int = 1
    leader_epoch: int = 7
    high_watermark: int = 1000


@dataclass
class ScriptedController:
    """What is answered.

    Attributes:
        quorum: what DescribeQuorum says; None: NOT_LEADER_OR_FOLLOWER.
        active: who leads, as DescribeCluster says it.
        others: (id, port) of the other controllers, on 127.0.0.1.
        apis: highest version of each API that is announced.
        errors: error codes with which the next questions of an API are refused.
        silent: APIs that are never answered.
        asked: APIs that were asked, in order.
    """

    quorum: Quorum | None
    node_id: int = 1
    active: int = 1
    others: tuple[tuple[int, int], ...] = ()
    apis: Mapping[ApiKey, int] = field(default_factory=lambda: dict(CONTROLLER_APIS))
    errors: dict[ApiKey, list[ErrorCode]] = field(default_factory=dict)
    silent: tuple[ApiKey, ...] = ()
    asked: list[ApiKey] = field(default_factory=list)
    port: int = 0

    def answer(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        self.asked.append(key)
        if key in self.silent or key not in self.apis:
            return None
        error = next(iter(self.errors.get(key, [])), ErrorCode.NONE)
        if error:
            self.errors[key].pop(0)
        if key == ApiKey.API_VERSIONS and version > self.apis[key]:
            version, error = 0, ErrorCode.UNSUPPORTED_VERSION
        fields = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.DESCRIBE_CLUSTER: self._cluster,
            ApiKey.DESCRIBE_QUORUM: self._described,
            ApiKey.METADATA: self._metadata,
        }[key](error)
        message = codec.response(key)
        body = message.encode(build(message.cls, fields), version)
        tags = b"\0" * header_versions(key, version)[1]
        return header.correlation_id.to_bytes(4, "big") + tags + body

    def _versions(self, error: ErrorCode) -> dict[str, Any]:
        keys = [
            {"api_key": int(key), "min_version": 0, "max_version": last}
            for key, last in self.apis.items()
        ]
        return {"error_code": int(error), "api_keys": keys}

    def _cluster(self, error: ErrorCode) -> dict[str, Any]:
        if error:
            return {"error_code": int(error), "error_message": error.name, "cluster_id": ""}
        nodes = [
            {"broker_id": node_id, "host": "127.0.0.1", "port": port}
            for node_id, port in ((self.node_id, self.port), *self.others)
        ]
        return {
            "error_code": 0,
            "endpoint_type": 1 if ApiKey.METADATA in self.apis else 2,
            "cluster_id": CLUSTER_ID,
            "controller_id": self.active,
            "brokers": nodes,
        }

    def _metadata(self, error: ErrorCode) -> dict[str, Any]:
        node = {"node_id": self.node_id, "host": "127.0.0.1", "port": self.port}
        return {"brokers": [node], "cluster_id": CLUSTER_ID, "controller_id": 1, "topics": []}

    def _described(self, error: ErrorCode) -> dict[str, Any]:
        if self.quorum is None:
            error = error or ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error:
            partition: dict[str, Any] = {
                "partition_index": 0, "error_code": int(error), "error_message": error.name,
                "leader_id": 0, "leader_epoch": 0, "high_watermark": 0,
                "current_voters": [], "observers": [],
            }  # fmt: skip
            nodes: list[Any] = []
        else:
            assert self.quorum is not None
            partition, nodes = _partition(self.quorum), _nodes(self.quorum)
        topic = {"topic_name": TOPIC, "partitions": [partition]}
        return {"error_code": 0, "error_message": "", "topics": [topic], "nodes": nodes}


def _partition(quorum: Quorum) -> dict[str, Any]:
    return {
        "partition_index": 0,
        "error_code": 0,
        "error_message": "",
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "current_voters": [_replica(one) for one in quorum.voters],
        "observers": [_replica(one) for one in quorum.observers],
    }


def _nodes(quorum: Quorum) -> list[Any]:
    return [
        {
            "node_id": node_id,
            "listeners": [{"name": name, "host": host, "port": port} for name, host, port in where],
        }
        for node_id, where in quorum.nodes.items()
    ]


def _replica(one: Replica) -> dict[str, Any]:
    replica_id, directory, end, fetched, caught_up = one
    return {
        "replica_id": replica_id,
        "replica_directory_id": uuid_from_text(directory),
        "log_end_offset": end,
        "last_fetch_timestamp": fetched,
        "last_caught_up_timestamp": caught_up,
    }


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        controller: ScriptedController = self.server.controller  # type: ignore[attr-defined]
        while size := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(size, "big"))
            answer = controller.answer(frame)
            if answer is not None:
                self.wfile.write(len(answer).to_bytes(4, "big") + answer)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def serving(controller: ScriptedController) -> Iterator[str]:
    """Serve on a free port; gives `host:port`."""
    with _Server(("127.0.0.1", 0), _Connection) as server:
        server.controller = controller  # type: ignore[attr-defined]
        controller.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{controller.port}"
        finally:
            server.shutdown()
            thread.join()
