"""Bad input, framing and headers. Deadlines: unit tests of the network."""

import struct
import uuid

import pytest

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import (  # noqa: F401 - fixtures
    assert_closed,
    client,
    health_topic,
    memory_bytes,
    topic,
    well_afterwards,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import Closed, RawClient, fetch, header


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(struct.pack(">i", 0), "a request of 0 bytes", id="empty"),
        pytest.param(struct.pack(">i", -1), "a request of -1 bytes", id="negative"),
        pytest.param(struct.pack(">i", 2**31 - 1), "a request of 2147483647 bytes", id="largest"),
        pytest.param(struct.pack(">i", 104_857_601), "of 104857601 bytes", id="one-above"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP", id="http"),
        pytest.param(b"\xde\xad\xbe\xef" * 1024, "is announced", id="noise"),
        pytest.param(b"\x00\x00\x00\x05abcde", "header is cut short", id="cut-header"),
        pytest.param(
            struct.pack(">i", 10) + struct.pack(">hhih", 3, 1, 0, 32767),
            "malformed request header",
            id="cut-client-id",
        ),
    ],
)
def test_bad_input(broker: BrokerProcess, client: RawClient, data: bytes, reason: str) -> None:  # noqa: F811
    client.send(data)
    assert_closed(broker, client, reason)


def test_bad_input_a_half_closed_frame(broker: BrokerProcess, client: RawClient) -> None:  # noqa: F811
    client.send(struct.pack(">i", 1000) + b"ten bytes!")
    client.socket.shutdown(1)
    assert_closed(broker, client, "inside a request")


@pytest.mark.parametrize(
    "api_key",
    [
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ],
    ids=lambda api_key: api_key.name.lower(),
)
def test_bad_input_what_only_controllers_serve(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    api_key: ApiKey,
) -> None:
    """N016: a request of controllers on a listener for clients."""
    client.send_frame(header(api_key, 0) + bytes(20))
    assert_closed(broker, client, f"api key {int(api_key)} is not served here")


def test_bad_input_an_honest_length_costs_nothing_before_the_bytes_are_there(
    broker: BrokerProcess,
) -> None:
    before = memory_bytes(broker.pid)
    clients = [RawClient(broker) for _ in range(50)]
    for one in clients:
        one.send(struct.pack(">i", 104_857_600) + b"x" * 100)
    with RawClient(broker) as other:
        other.ask(ApiKey.METADATA, 1, {"topics": []})
    assert memory_bytes(broker.pid) - before < 50_000_000
    for one in clients:
        one.socket.close()


def test_bad_input_answers_are_never_read(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    health_topic: str,  # noqa: F811
) -> None:
    client.socket.setblocking(False)
    request = header(ApiKey.API_VERSIONS, 0)
    data = (struct.pack(">i", len(request)) + request) * 10_000
    before, sent = memory_bytes(broker.pid), 0
    try:
        for _ in range(50):
            sent += client.socket.send(data)
    except BlockingIOError:
        pass
    assert sent
    with RawClient(broker) as other:
        fetch(other, health_topic)
    assert memory_bytes(broker.pid) - before < 50_000_000


@pytest.mark.parametrize("surplus", [b"\0", b"\xff" * 3, b"x" * 1000])
def test_bad_input_surplus_bytes_are_ignored(client: RawClient, surplus: bytes) -> None:  # noqa: F811
    message = codec.request(ApiKey.METADATA)
    body = message.encode(message.cls(topics=[]), 1) + surplus
    assert client.ask(ApiKey.METADATA, 1, body).topics == []
    assert client.ask(ApiKey.METADATA, 1, body).topics == []


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        pytest.param(999, 0, id="unknown"),
        pytest.param(-1, 0, id="negative"),
        pytest.param(4, 0, id="retired"),
        pytest.param(ApiKey.METADATA, 14, id="version-above"),
        pytest.param(ApiKey.PRODUCE, 2, id="version-only-advertised"),
        pytest.param(ApiKey.FETCH, 3, id="version-below"),
        pytest.param(ApiKey.METADATA, -1, id="version-negative"),
        pytest.param(ApiKey.ALTER_PARTITION, 2, id="AlterPartition"),
        pytest.param(ApiKey.BROKER_REGISTRATION, 0, id="BrokerRegistration"),
        pytest.param(ApiKey.ALLOCATE_PRODUCER_IDS, 0, id="AllocateProducerIds"),
        pytest.param(ApiKey.ENVELOPE, 0, id="Envelope"),
        pytest.param(ApiKey.VOTE, 0, id="Vote"),
    ],
)
def test_bad_input_not_served(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    api_key: int,
    version: int,
) -> None:
    client.send_frame(struct.pack(">hhih", api_key, version, 1, -1) + b"\0" * 20)
    assert_closed(broker, client, "is not served here")


@pytest.mark.parametrize("body", [b"", b"\xff" * 50, b"\0\x01\x02"])
def test_bad_input_api_versions_of_the_future(client: RawClient, body: bytes) -> None:  # noqa: F811
    client.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, -1) + b"\0" + body)
    answer, _ = codec.response(ApiKey.API_VERSIONS).decode(client.receive_frame(), 0, 4)
    assert answer.error_code == 35
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
    again = client.ask(ApiKey.API_VERSIONS, 0, b"")
    assert again.error_code == 0
    assert len(again.api_keys) > 5


def test_bad_input_a_null_client_id_is_served(client: RawClient) -> None:  # noqa: F811
    client.send_frame(header(ApiKey.METADATA, 1, client_id=None) + b"\0\0\0\0")
    assert client.answer(ApiKey.METADATA, 1).topics == []


@pytest.mark.parametrize("version", [1, 9])
@pytest.mark.parametrize(
    "client_id", [b"\xff\xfea", b"cut \xe2\x82", b"\xed\xa0\x80", b"\xc0\x80", b"\0"]
)
def test_bad_input_a_client_id_that_is_no_utf8_is_served(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    client_id: bytes,
    version: int,
) -> None:
    message = codec.request(ApiKey.METADATA)
    encoded = message.encode(message.cls(topics=[]), version)
    for _ in range(2):
        client.send_frame(header(ApiKey.METADATA, version, client_id=client_id) + encoded)
        assert client.answer(ApiKey.METADATA, version).topics == []
    client.send_frame(header(999, 0, client_id=client_id))
    assert_closed(broker, client, "not served")


@pytest.mark.parametrize("length", [-2, -5, -32768])
def test_bad_input_any_negative_length_of_a_client_id_is_null(
    client: RawClient,  # noqa: F811
    length: int,
) -> None:
    client.send_frame(struct.pack(">hhihi", ApiKey.METADATA, 1, 0, length, 0))
    assert client.answer(ApiKey.METADATA, 1).topics == []


@pytest.mark.parametrize("count", [-2, -(2**31)])
def test_bad_input_any_negative_count_is_null(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    count: int,
) -> None:
    """Null topics are all topics from version 1 on, and not allowed before; as Kafka."""
    assert client.ask(ApiKey.METADATA, 1, struct.pack(">i", count)).topics
    client.send_frame(header(ApiKey.METADATA, 0) + struct.pack(">i", count))
    assert_closed(broker, client, "malformed METADATA request")


@pytest.mark.parametrize("length", [-1, -2, -32768])
def test_bad_input_a_null_name_closes(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    length: int,
) -> None:
    client.send_frame(header(ApiKey.FIND_COORDINATOR, 0) + struct.pack(">h", length))
    assert_closed(broker, client, "malformed FIND_COORDINATOR request")


def test_bad_input_a_client_id_cannot_forge_log_lines(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
) -> None:
    mark = uuid.uuid4().hex
    evil = f"x\r\n{mark} forged\x1b[2J".encode()
    client.send_frame(header(ApiKey.METADATA, 1, client_id=evil) + b"\0\0\0\0")
    assert client.answer(ApiKey.METADATA, 1).topics == []
    client.send_frame(header(999, 0, client_id=evil))
    assert_closed(broker, client, "not served")
    assert f"\n{mark}" not in broker.log_text()
    assert "\x1b[2J" not in broker.log_text()
    assert f"\\r\\n{mark}" in broker.log_text()


def test_bad_input_connections_from_one_address(make_broker) -> None:  # type: ignore[no-untyped-def]
    broker = make_broker("limited", settings={"max.connections.per.ip": "20"}).start()
    held, refused = [], 0
    for _ in range(60):
        one = RawClient(broker)
        try:
            one.ask(ApiKey.METADATA, 1, {"topics": []})
            held.append(one)
        except Closed:
            refused += 1
            one.socket.close()
    assert refused >= 40
    held.pop().socket.close()
    for one in held:
        one.ask(ApiKey.METADATA, 1, {"topics": []})
        one.socket.close()
    assert "Traceback" not in broker.log_text()
