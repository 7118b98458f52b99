"""Bystanders of a broker: how long each waits for its small request, again and again.

    python -m benchmarks.stall_probe BOOTSTRAP HTTP PID TOPIC

Three connections of their own: ApiVersions, produce of one small record with acks=1 (no TOPIC: no
such one), and the health page. A process of its own: the work beside them would hold the lock that
they need. Ends when its input does, and prints {kind: [[began_s, waited_ms, corrected_ms], ...]};
the clock is the machine's monotonic one. Corrected is without the time in which the broker's event
loop, or the bystander itself, could have run and had no CPU.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from kafka_protocol.records.records import build_batch
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions

PAUSE_S = 0.001
PATIENCE_S = 180


class Client:
    """One connection that asks one question after the other, or many at once."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, api_key: ApiKey, version: int, body: Any) -> Any:
        """Send a request and decode its answer."""
        answer = self.exchange(frame(api_key, version, body))
        return codec.response(api_key).decode(
            answer, version, 4 + header_versions(api_key, version)[1]
        )[0]

    def exchange(self, request: bytes) -> bytes:
        """Send a frame and wait for its answer, without the length."""
        self.send(request)
        return self.receive()

    def exchange_many(self, requests: list[bytes]) -> list[bytes]:
        """Send frames one behind the other, then wait for all answers."""
        self.send(b"".join(requests))
        return [self.receive() for _ in requests]

    def send(self, request: bytes) -> None:
        """Send a frame, whose answer is received later."""
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Wait for the next answer, without the length."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionResetError("the broker ended the connection")
            data += piece
        return bytes(data)


def frame(api_key: ApiKey, version: int, body: Any) -> bytes:
    """A whole request, its length before it."""
    head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\x05bench"
    head += b"\0" * (header_versions(api_key, version)[0] == 2)
    text = head + codec.request(api_key).encode(body, version)
    return len(text).to_bytes(4, "big") + text


def produce_frame(batches: dict[tuple[str, int], bytes | bytearray], acks: int = 1) -> bytes:
    """A Produce request with one batch a partition."""
    cls = codec.request(ApiKey.PRODUCE).cls
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), batch in batches.items():
        data = cls.TopicData.PartitionData(index=partition, records=bytes(batch))
        by_topic.setdefault(topic, []).append(data)
    topics = [cls.TopicData(name=name, partition_data=data) for name, data in by_topic.items()]
    return frame(ApiKey.PRODUCE, 9, cls(acks=acks, timeout_ms=60_000, topic_data=topics))


class RunnableTime:
    """Milliseconds that a thread could have run and had no CPU, since its start."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def read(self) -> float:
        try:
            return int(os.pread(self._fd, 100, 0).split()[1]) / 1e6
        except (OSError, IndexError):
            return 0


class Bystander(threading.Thread):
    """Asks again and again; a connection that fails or is refused is no answer."""

    def __init__(self, pid: int, make: Callable[[], Callable[[], object]]) -> None:
        super().__init__(daemon=True)
        self._pid, self._make = pid, make
        self.stopped = False
        self.samples: list[tuple[float, float, float]] = []

    def run(self) -> None:
        broker = RunnableTime(f"/proc/{self._pid}/schedstat")
        own = RunnableTime(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        ask = None
        while not self.stopped:
            before_ms, began = broker.read() + own.read(), time.monotonic()
            try:
                ask = ask or self._make()
                ask()
            except OSError:
                ask = None
            else:
                waited_ms = (time.monotonic() - began) * 1_000
                kept_ms = broker.read() + own.read() - before_ms
                self.samples.append((began, waited_ms, max(0.0, waited_ms - kept_ms)))
            time.sleep(PAUSE_S)


def ask_versions(bootstrap: str) -> Callable[[], object]:
    client = Client(bootstrap)
    request = frame(ApiKey.API_VERSIONS, 0, codec.request(ApiKey.API_VERSIONS).cls())
    return lambda: client.exchange(request)


def produce_small(bootstrap: str, topic: str) -> Callable[[], object]:
    client = Client(bootstrap)

    def ask() -> None:
        batch = build_batch([(int(time.time() * 1_000), None, b"x" * 100, [])])
        answer = client.exchange(produce_frame({(topic, 0): batch}))
        decoded = codec.response(ApiKey.PRODUCE).decode(answer, 9, 5)[0]
        if decoded.responses[0].partition_responses[0].error_code:
            raise ConnectionError("the topic is not there yet")

    return ask


def read_health(http: str) -> Callable[[], object]:
    host, port = http.rsplit(":", 1)

    def ask() -> None:
        with socket.create_connection((host, int(port)), PATIENCE_S) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            if not client.recv(1 << 16):
                raise ConnectionError("no answer")

    return ask


def main() -> None:
    bootstrap, http, pid, topic = sys.argv[1:5]
    makers = {
        "versions": lambda: ask_versions(bootstrap),
        "health": lambda: read_health(http),
    }
    if topic:
        makers["produce"] = lambda: produce_small(bootstrap, topic)
    bystanders = {kind: Bystander(int(pid), make) for kind, make in makers.items()}
    for one in bystanders.values():
        one.start()
    sys.stdin.read()
    for one in bystanders.values():
        one.stopped = True
    for one in bystanders.values():
        one.join(PATIENCE_S)
    print(json.dumps({kind: one.samples for kind, one in bystanders.items()}))


if __name__ == "__main__":
    main()
