"""Bad input over time: short deadlines, and very many idle connections."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import (
    ANSWER_S_MAX,
    assert_closed,
    batch,
    descriptors,
    memory_bytes,
)
from tests.support.brokers.process import BrokerProcess, running, until
from tests.support.brokers.raw_client import RawClient, create_topic, fetch, header, produce

DEADLINE_MS = 1_000
IDLE_CONNECTIONS = 1_500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "tidemark.request.receive.timeout.ms": str(DEADLINE_MS),
        "tidemark.connection.write.timeout.ms": str(DEADLINE_MS),
    }
    yield from running(BrokerProcess(tmp_path_factory.mktemp("hasty"), settings=settings))


@pytest.fixture(autouse=True)
def well_afterwards(broker: BrokerProcess) -> Iterator[None]:
    topic = f"health-{time.monotonic_ns()}"
    with RawClient(broker) as client:
        create_topic(client, topic)
    memory, open_before = memory_bytes(broker.pid), descriptors(broker.pid)
    yield
    began = time.monotonic()
    with RawClient(broker) as client:
        assert produce(client, topic, batch(b"still here")).error_code == 0
        assert b"still here" in bytes(fetch(client, topic).records)
    assert time.monotonic() - began < ANSWER_S_MAX
    assert memory_bytes(broker.pid) - memory < 50_000_000
    until(lambda: descriptors(broker.pid) <= open_before + 8, "descriptors are closed")
    assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_bad_input_silence_after_ten_bytes(broker: BrokerProcess, size: int) -> None:
    with RawClient(broker) as client:
        client.send(struct.pack(">i", size) + b"ten bytes!")
        assert_closed(broker, client, f"not complete after {DEADLINE_MS} ms")


def test_bad_input_a_trickle_ends_at_the_same_deadline(broker: BrokerProcess) -> None:
    request = header(ApiKey.METADATA, 1) + b"\0\0\0\0"
    frame = struct.pack(">i", len(request)) + request
    with RawClient(broker) as client:
        client.socket.settimeout(0.2)
        sent, began = 0, time.monotonic()
        while sent < len(frame):
            client.socket.send(frame[sent : sent + 1])
            sent += 1
            try:
                assert client.socket.recv(1) == b""
                break
            except TimeoutError:
                continue  # the next byte, 200 ms later
            except ConnectionResetError:
                break
        assert sent < len(frame), "the whole request went through"
        assert time.monotonic() - began < 3
    reason = f"not complete after {DEADLINE_MS} ms"
    peer = f"peer={client.address[0]}:{client.address[1]} "
    until(lambda: peer in broker.log_text(), f"a log line about {peer}")
    (line,) = [line for line in broker.log_text().splitlines() if peer in line]
    assert reason in line


def test_bad_input_ten_thousand_requests_and_no_answer_read(broker: BrokerProcess) -> None:
    request = header(ApiKey.API_VERSIONS, 0)
    data = (struct.pack(">i", len(request)) + request) * 10_000
    before = memory_bytes(broker.pid)
    with RawClient(broker) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.socket.setblocking(False)
        try:
            for _ in range(100):
                client.socket.send(data)
        except BlockingIOError:
            pass
        peer = f"peer={client.address[0]}:{client.address[1]} "
        until(lambda: peer in broker.log_text(), "the connection is closed", deadline_s=20)
    assert memory_bytes(broker.pid) - before < 50_000_000
    (line,) = [line for line in broker.log_text().splitlines() if peer in line]
    assert f"took no byte of its answers for {DEADLINE_MS} ms" in line


@pytest.mark.alone
def test_very_many_idle_connections_cost_little_and_hold_nobody_up(broker: BrokerProcess) -> None:
    with RawClient(broker) as client:
        create_topic(client, "busy")
    before = memory_bytes(broker.pid)
    idle = [RawClient(broker) for _ in range(IDLE_CONNECTIONS)]
    try:
        began = time.monotonic()
        with RawClient(broker) as client:
            for _ in range(20):
                assert produce(client, "busy", batch(b"x")).error_code == 0
        assert time.monotonic() - began < 1
        assert memory_bytes(broker.pid) - before < 50_000_000
        idle[0].ask(ApiKey.METADATA, 1, {"topics": []})
    finally:
        for one in idle:
            one.socket.close()
