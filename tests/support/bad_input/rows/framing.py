"""Framing, headers, deadlines."""

import socket
import struct
import uuid

import pytest

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import On, case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.raw_client import Closed, header

EMPTY_METADATA = header(ApiKey.METADATA, 1) + b"\0\0\0\0"
DEADLINE = "not complete after 1000 ms"


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


@cases(
    {
        "N001 empty": (struct.pack(">i", 0), "a request of 0 bytes"),
        "N002 negative": (struct.pack(">i", -1), "a request of -1 bytes"),
        "N002 least": (struct.pack(">i", -(2**31)), "a request of -2147483648 bytes"),
        "N002 largest": (struct.pack(">i", 2**31 - 1), "a request of 2147483647 bytes"),
        "N002 one above": (struct.pack(">i", 104_857_601), "of 104857601 bytes"),
        "N005 http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP"),
        "N006 tls hello": (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
            "announced",
        ),
        "N007 noise": (b"\xde\xad\xbe\xef" * 1024, "is announced"),
        "N013 five bytes": (framed(b"abcde"), "header is cut short"),
        "N013 cut client id": (
            framed(struct.pack(">hhih", 3, 1, 0, 32_767)),
            "malformed request header",
        ),
        "N013 cut tags": (framed(header(ApiKey.METADATA, 12)[:-1]), "malformed"),
    }
)
def what_is_no_frame(stage: Stage, sent: tuple[bytes, str]) -> None:
    data, reason = sent
    stage.client.send(data)
    stage.closed(reason)


@cases({f"N003 half closed {size}": size for size in (1_000, 1_000_000)})
def half_closed(stage: Stage, size: int) -> None:
    stage.client.send(struct.pack(">i", size) + b"ten bytes!")
    stage.client.socket.shutdown(socket.SHUT_WR)
    stage.closed("inside a request")


@cases({f"N003 silence {size}": size for size in (1_000, 1_000_000)}, on=On.NARROW)
def silence_after_ten_bytes(stage: Stage, size: int) -> None:
    stage.client.send(struct.pack(">i", size) + b"ten bytes!")
    stage.closed(DEADLINE)


@case("N003")
def honest_lengths_cost_nothing_before_the_bytes_are_there(stage: Stage) -> None:
    for one in [stage.connect() for _ in range(50)]:
        one.send(struct.pack(">i", 104_857_600) + b"x" * 100)
    stage.client.ask(ApiKey.METADATA, 1, {"topics": []})
    assert not stage.unexpected_ends()
    for one in stage.connections[1:]:
        one.socket.shutdown(socket.SHUT_WR)
        stage.closed("inside a request", one)


@case("N004", on=On.NARROW)
def a_trickle(stage: Stage) -> None:
    frame, client = framed(EMPTY_METADATA), stage.client
    client.socket.settimeout(0.2)
    for position in range(len(frame)):
        client.socket.send(frame[position : position + 1])
        try:
            assert client.socket.recv(1) == b""
            break
        except TimeoutError:
            continue  # the next byte, 200 ms later
        except ConnectionResetError:
            break
    else:
        pytest.fail("the whole request went through")
    stage.closes(DEADLINE, client)


@cases({f"N009 {len(data)} bytes": data for data in (b"\0", b"\xff" * 3, b"x" * 1000)})
def surplus_is_ignored(stage: Stage, surplus: bytes) -> None:
    message = codec.request(ApiKey.METADATA)
    body = message.encode(message.cls(topics=[]), 1) + surplus
    for _ in range(2):
        assert stage.client.ask(ApiKey.METADATA, 1, body).topics == []


@cases(
    {
        "N010 unknown": (999, 0),
        "N010 negative": (-1, 0),
        "N010 retired": (4, 0),
        "N010 largest": (32_767, 32_767),
        "N011 above": (ApiKey.METADATA, 14),
        "N011 only advertised": (ApiKey.PRODUCE, 2),
        "N011 below": (ApiKey.FETCH, 3),
        "N011 negative": (ApiKey.METADATA, -1),
        "N016 vote": (ApiKey.VOTE, 0),
        "N016 begin quorum epoch": (ApiKey.BEGIN_QUORUM_EPOCH, 0),
        "N016 end quorum epoch": (ApiKey.END_QUORUM_EPOCH, 0),
        "N016 alter partition": (ApiKey.ALTER_PARTITION, 2),
        "N016 envelope": (ApiKey.ENVELOPE, 0),
        "N016 fetch snapshot": (ApiKey.FETCH_SNAPSHOT, 0),
        "N016 broker registration": (ApiKey.BROKER_REGISTRATION, 0),
        "N016 broker heartbeat": (ApiKey.BROKER_HEARTBEAT, 0),
        "N016 allocate producer ids": (ApiKey.ALLOCATE_PRODUCER_IDS, 0),
        "N016 controller registration": (ApiKey.CONTROLLER_REGISTRATION, 0),
        "N016 assign replicas": (ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0),
        "N017 write txn markers": (ApiKey.WRITE_TXN_MARKERS, 1),
        "N076 end txn": (ApiKey.END_TXN, 0),
        "N079 add partitions to txn": (ApiKey.ADD_PARTITIONS_TO_TXN, 0),
        "N095 sasl authenticate": (ApiKey.SASL_AUTHENTICATE, 0),
        "N096 sasl handshake": (ApiKey.SASL_HANDSHAKE, 1),
        "N099 scram users": (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0),
    }
)
def not_served(stage: Stage, asked: tuple[int, int]) -> None:
    api_key, version = asked
    stage.client.send_frame(struct.pack(">hhih", api_key, version, 1, -1) + b"\0" * 20)
    stage.closed(f"api key {int(api_key)}")


@cases({"N012 empty": b"", "N012 noise": b"\xff" * 50, "N012 cut": b"\0\x01\x02"})
def api_versions_of_the_future(stage: Stage, body: bytes) -> None:
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, -1)
    stage.client.send_frame(head + b"\0" + body)
    answer, _ = codec.response(ApiKey.API_VERSIONS).decode(stage.client.receive_frame(), 0, 4)
    assert answer.error_code == 35
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
    again = stage.client.ask(ApiKey.API_VERSIONS, 0, b"")
    assert again.error_code == 0
    assert len(again.api_keys) > 5


@case("N015")
def a_client_id_cannot_forge_log_lines(stage: Stage) -> None:
    mark = uuid.uuid4().hex
    evil = f"x\r\n{mark} forged\x1b[2J".encode()
    stage.client.send_frame(header(ApiKey.METADATA, 1, client_id=evil) + b"\0\0\0\0")
    assert stage.client.answer(ApiKey.METADATA, 1).topics == []
    stage.client.send_frame(header(999, 0, client_id=evil))
    stage.closed("not served")
    assert f"\\r\\n{mark}" in stage.log


@cases(
    {
        "N015 no text": b"\xff\xfea",
        "N015 cut text": b"cut \xe2\x82",
        "N015 surrogate": b"\xed\xa0\x80",
        "N015 overlong": b"\xc0\x80",
        "N015 nul": b"\0",
    }
)
def a_client_id_that_is_no_text_is_served(stage: Stage, client_id: bytes) -> None:
    for version, body in ((1, b"\0\0\0\0"), (9, b"\x01\x01\0\0\0")):
        for _ in range(2):
            head = header(ApiKey.METADATA, version, client_id=client_id)
            stage.client.send_frame(head + body)
            assert stage.client.answer(ApiKey.METADATA, version).topics == []
    stage.client.send_frame(header(999, 0, client_id=client_id))
    stage.closed("not served")


@case("N015")
def the_longest_client_id_is_cut_in_the_log(stage: Stage) -> None:
    stage.client.send_frame(header(999, 0, client_id=b"long" * 8_000))
    stage.closed("not served")
    assert max(map(len, stage.log.splitlines())) < 1_000


@case("I01", alone=True)
def very_many_idle_connections_hold_nobody_up(stage: Stage) -> None:
    for number in range(1_000):
        one = stage.connect()
        if number % 40 == 0:  # the broker has accepted what came before: no backlog is full
            one.ask(ApiKey.METADATA, 1, {"topics": []})


@case("N110", on=On.NARROW)
def connections_from_one_address(stage: Stage) -> None:
    held, refused = [], 0
    for _ in range(100):
        one = stage.connect()
        try:
            one.ask(ApiKey.METADATA, 1, {"topics": []})
            held.append(one)
        except Closed:
            refused += 1
            stage.closes("too many connections", one)
            one.socket.close()
    assert refused >= 60
    held.pop().socket.close()
    for one in held:
        one.ask(ApiKey.METADATA, 1, {"topics": []})
