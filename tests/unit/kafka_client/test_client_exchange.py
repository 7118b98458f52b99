"""Requests and answers of a connection without one: bytes in, bytes out, and a clock."""

import struct
from typing import Any

import pytest

from kafka_client.exchange import AT_ONCE_BYTES, ConnectionSettings, Exchange
from kafka_client.requests import (
    CORRELATION_ID_MAX,
    Answer,
    Call,
    NoAnswerError,
    NotSentError,
    UnreadableAnswerError,
    UnsupportedError,
    encoder,
)
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from kafka_protocol.wire.schema import Versions
from tests.support.kafka_client.node import framed, greeted
from tests.support.sim.clock import ManualClock

APIS = {ApiKey.DESCRIBE_CLUSTER: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}


def cluster(number: int, cluster_id: str = "ours", version: int = 1, tags: bytes = b"\0") -> bytes:
    codec = response(ApiKey.DESCRIBE_CLUSTER)
    body = codec.encode(codec.cls(cluster_id=cluster_id), version)
    return framed(struct.pack(">i", number) + tags + body)


class Side:
    """One side of a connection, driven by hand."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.exchange = Exchange(ConnectionSettings(client_id="test", **settings), self.clock)
        self.ends: list[Any] = []

    def ask(self, *, timeout_ms: int = 1_000, **more: Any) -> Call:
        body = request(ApiKey.DESCRIBE_CLUSTER).cls()
        encode = encoder(ApiKey.DESCRIBE_CLUSTER, body)
        call = Call(
            ApiKey.DESCRIBE_CLUSTER, encode, self.ends.append, timeout_ms=timeout_ms, **more
        )
        self.exchange.add(call)
        return call

    def sent(self) -> list[tuple[int, int, int]]:
        """API key, version and correlation id of each request that goes out now."""
        data, found = self.exchange.take_outgoing(), []
        while data:
            (size,) = struct.unpack_from(">i", data)
            header = read_request_header(data[4 : 4 + size])
            assert header.client_id == "test"
            found.append((header.api_key, header.api_version, header.correlation_id))
            data = data[4 + size :]
        return found

    def receive(self, data: bytes, at_a_time: int = 1 << 30) -> bytes:
        """Take bytes as far as they are read; gives the rest."""
        while data and self.exchange.is_reading:
            room = self.exchange.buffer()[:at_a_time]
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            found = self.exchange.received(count)
            if found is not None:
                call, answer = found
                result = call.result_of(answer)
                if result is not answer:
                    answer.release()
                call.finish(result)
        return data


def ready(**settings: Any) -> Side:
    side = Side(**settings)
    side.exchange.opened()
    ((key, version, number),) = side.sent()
    assert (key, version) == (ApiKey.API_VERSIONS, 3)
    side.receive(greeted(APIS, number))
    assert side.exchange.is_ready
    return side


def test_requests_wait_for_api_versions_and_use_the_highest_common_one() -> None:
    side = Side()
    side.ask()
    side.exchange.opened()
    assert [key for key, _, _ in side.sent()] == [ApiKey.API_VERSIONS]
    side.ask(versions=0)
    side.receive(greeted(APIS, 0))
    assert side.sent() == [(60, 1, 1), (60, 0, 2)]
    side.receive(cluster(1) + cluster(2, "old", version=0))
    assert [one.cluster_id for one in side.ends] == ["ours", "old"]


@pytest.mark.parametrize("at_a_time", [1, 3, 1 << 20])
def test_answers_in_pieces_are_the_same(at_a_time: int) -> None:
    side = ready()
    for _ in range(3):
        side.ask()
    data = cluster(1) + cluster(2, tags=b"\1\7\2ab") + cluster(3)
    side.receive(data, at_a_time)
    assert [one.cluster_id for one in side.ends] == ["ours"] * 3
    assert side.exchange.held_bytes == 0


@pytest.mark.parametrize(
    "answer",
    [
        cluster(2),
        cluster(0),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        framed(struct.pack(">i", 1)),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_bytes_that_are_no_answer_to_the_request_end_the_connection(answer: bytes) -> None:
    side = ready()
    side.ask()
    with pytest.raises(ConnectionError) as caught:
        side.receive(answer)
    side.exchange.end(caught.value)
    assert isinstance(side.ends[0], NoAnswerError)
    assert side.ends[0].__cause__ is caught.value


def test_a_second_answer_is_not_that_to_the_next_request() -> None:
    side = ready()
    side.ask()
    with pytest.raises(ConnectionError, match="another question"):
        side.receive(cluster(1) * 2)
    assert [one.cluster_id for one in side.ends] == ["ours"]


@pytest.mark.parametrize(
    "answer", [cluster(1)[4:-3], struct.pack(">ib", 1, 0), struct.pack(">i", 1) + b"\1\7\x80"]
)
def test_an_answer_that_cannot_be_read_ends_its_request_alone(answer: bytes) -> None:
    side = ready()
    side.ask()
    side.ask()
    side.receive(framed(answer) + cluster(2))
    assert isinstance(side.ends[0], UnreadableAnswerError)
    assert side.ends[1].cluster_id == "ours"


def test_numbers_of_requests_begin_again_after_the_highest() -> None:
    side = ready()
    side.exchange._correlation_id = CORRELATION_ID_MAX
    side.ask()
    side.ask()
    assert [number for _, _, number in side.sent()] == [CORRELATION_ID_MAX, 0]


def test_what_the_other_side_does_not_serve_is_not_sent() -> None:
    side = ready()
    side.ask(versions=Versions(2, 3))
    assert isinstance(side.ends[0], UnsupportedError)
    assert str(side.ends[0]) == "DescribeClusterRequest 2 to 3 is asked; served is 0 to 1"
    assert side.sent() == []


def test_a_request_that_cannot_be_encoded_ends_alone() -> None:
    side = ready()

    def encode(_: int) -> bytes:
        return struct.pack(">b", 300)

    side.exchange.add(Call(ApiKey.DESCRIBE_CLUSTER, encode, side.ends.append, timeout_ms=1))
    side.ask()
    assert isinstance(side.ends[0], UnsupportedError)
    assert side.sent() == [(60, 1, 1)]


def test_whatever_the_reading_of_an_answer_raises_ends_its_request() -> None:
    side = ready()

    def read(_: Answer) -> None:
        raise MemoryError

    side.ask(read=read)
    side.receive(cluster(1))
    assert isinstance(side.ends[0], UnreadableAnswerError)
    assert str(side.ends[0]) == "DESCRIBE_CLUSTER 1: MemoryError"


@pytest.mark.parametrize("apis", [{}, {ApiKey.VOTE: (3, 4)}])
def test_a_node_that_does_not_say_what_it_serves_is_not_asked(apis: Any) -> None:
    side = Side()
    side.ask()
    side.exchange.opened()
    try:
        side.receive(greeted(apis, 0, error=0 if apis else 35))
    except ConnectionError as reason:
        side.exchange.end(reason)
    assert isinstance(side.ends[0], NotSentError)


# -- time


def ends_in(side: Side, left_ms: int, reason: str) -> None:
    """The connection has so long, and ends then; its requests with it."""
    assert side.exchange.pass_time() == left_ms
    side.clock.advance(left_ms)
    with pytest.raises(TimeoutError) as caught:
        side.exchange.pass_time()
    assert str(caught.value) == reason
    side.exchange.end(caught.value)


def test_a_connection_with_a_request_is_not_idle() -> None:
    side = ready(idle_ms_max=5_000)
    side.ask(timeout_ms=60_000)
    assert side.exchange.pass_time() == 60_000
    side.receive(cluster(1))
    ends_in(side, 5_000, "idle")


def test_a_request_whose_time_is_over_ends_alone_and_its_answer_is_dropped() -> None:
    side = ready()
    hasty, _ = side.ask(timeout_ms=200), side.ask(timeout_ms=1_000)
    side.clock.advance(150)
    assert side.exchange.pass_time() == 50
    side.clock.advance(50)
    assert side.exchange.pass_time() == 800
    assert [(type(one), str(one)) for one in side.ends] == [
        (NoAnswerError, "no answer within 200 ms")
    ]
    assert hasty.is_done
    side.receive(cluster(1) + cluster(2))
    assert [one.cluster_id for one in side.ends[1:]] == ["ours"]
    assert side.exchange.held_bytes == 0


def test_the_connection_ends_when_no_request_on_it_has_time() -> None:
    side = ready()
    side.ask(timeout_ms=200)
    side.clock.advance(100)
    side.ask(timeout_ms=200)
    side.clock.advance(100)
    assert side.exchange.pass_time() == 100
    ends_in(side, 100, "no answer within 200 ms")
    assert [type(one) for one in side.ends] == [NoAnswerError] * 2


@pytest.mark.parametrize(("limit_ms", "ends_ms"), [(500, 500), (0, 300)])
def test_a_node_that_answers_nothing_is_given_up_though_requests_come(
    limit_ms: int, ends_ms: int
) -> None:
    side = ready(request_timeout_ms=limit_ms)
    for _ in range(ends_ms // 100):
        side.ask(timeout_ms=300)
        assert side.exchange.pass_time() is not None
        side.clock.advance(100)
    with pytest.raises(TimeoutError, match=f"no answer within {ends_ms} ms"):
        side.exchange.pass_time()


def test_the_limit_of_a_connection_is_not_below_the_time_of_a_request() -> None:
    side = ready(request_timeout_ms=30_000)
    side.ask(timeout_ms=60_000)
    ends_in(side, 60_000, "no answer within 60000 ms")


def test_a_cancelled_request_ends_no_other_and_keeps_no_connection() -> None:
    side = ready(idle_ms_max=5_000, request_timeout_ms=30_000)
    side.ask(timeout_ms=60_000)
    side.ask(timeout_ms=200).cancel()
    side.clock.advance(200)
    assert side.exchange.pass_time() == 59_800
    assert side.ends == []
    side.receive(cluster(1) + cluster(2))
    assert len(side.ends) == 1
    side.ask(timeout_ms=60_000).cancel()
    ends_in(side, 5_000, "idle")


def test_a_request_that_was_cancelled_before_the_greeting_is_not_sent() -> None:
    side = Side()
    side.ask().cancel()
    side.ask(versions=0)
    side.exchange.opened()
    side.receive(greeted(APIS, 0))
    assert [version for key, version, _ in side.sent() if key == 60] == [0]
    assert side.ends == []


def test_an_attempt_to_connect_has_a_limit_of_its_own() -> None:
    side = Side(connect_timeout_ms=2_000)
    side.ask(timeout_ms=60_000)
    side.exchange.opened()
    side.clock.advance(1_990)
    ends_in(side, 10, "not connected in 2000 ms")
    assert isinstance(side.ends[0], NotSentError), "it was never sent"


def test_a_request_with_little_time_does_not_end_the_attempt_to_connect() -> None:
    side = Side(connect_timeout_ms=2_000)
    side.ask(timeout_ms=100)
    side.ask(timeout_ms=500)
    side.exchange.opened()
    side.clock.advance(100)
    assert side.exchange.pass_time() == 400
    assert [type(one) for one in side.ends] == [NotSentError]
    side.receive(greeted(APIS, 0))
    assert [key for key, _, _ in side.sent()] == [18, 60]
    late = Side(connect_timeout_ms=2_000)
    late.ask(timeout_ms=500)
    ends_in(late, 500, "no answer within 500 ms")
    assert isinstance(late.ends[0], NotSentError)


# -- memory


def test_reading_stops_while_the_receiver_is_behind() -> None:
    size = len(cluster(1)) - 4
    side = ready(held_bytes_max=2 * size)
    for _ in range(4):
        side.ask(read=None, timeout_ms=100_000)
    resumed: list[int] = []
    side.exchange.on_capacity = lambda: resumed.append(side.exchange.held_bytes)
    rest = side.receive(b"".join(cluster(number) for number in range(1, 5)))
    assert side.exchange.held_bytes == 2 * size
    assert len(rest) == 2 * size + 4 - 4, "of the third only the head was read"
    first, second = side.ends
    assert isinstance(first, Answer)
    assert first.decode().cluster_id == "ours"
    first.release()
    first.release()
    assert (resumed, side.exchange.held_bytes) == ([2 * size], 2 * size)
    rest = side.receive(rest)
    assert len(side.ends) == 3
    second.release()
    assert side.receive(rest) == b""
    assert len(side.ends) == 4


def test_requests_time_out_while_reading_stops_and_the_connection_stays() -> None:
    side = ready(held_bytes_max=1)
    for _ in range(3):
        side.ask(read=None, timeout_ms=1_000)
    side.receive(cluster(1))
    rest = side.receive(cluster(2) + cluster(3))
    side.clock.advance(60_000)
    assert side.exchange.pass_time() is None
    assert [type(one) for one in side.ends] == [Answer, NoAnswerError, NoAnswerError]
    side.ask(timeout_ms=1_000)
    assert side.exchange.pass_time() == 1_000
    side.ends[0].release()
    assert side.receive(rest + cluster(4)) == b""
    assert side.ends[-1].cluster_id == "ours"


def test_one_answer_is_read_however_long_it_is() -> None:
    side = ready(held_bytes_max=1)
    side.ask(read=None)
    assert side.receive(cluster(1)) == b""
    assert len(side.ends) == 1


def test_a_long_answer_is_received_in_place_a_piece_at_a_time() -> None:
    side = ready()
    side.ask(read=None)
    content = struct.pack(">i", 1) + bytes(10 << 20)
    head = framed(content)[:8]
    side.receive(head)
    left_bytes = 10 << 20
    while left_bytes:
        room = side.exchange.buffer()
        assert len(room) == min(AT_ONCE_BYTES, left_bytes)
        room[:1] = b"x"
        left_bytes -= len(room)
        found = side.exchange.received(len(room))
    assert found is not None
    assert found[1].frame[4:5] == b"x"
    assert len(found[1].frame) == len(content)


# -- authentication


def test_a_mechanism_asks_before_the_first_request() -> None:
    told: list[bytes] = []

    def mechanism() -> Any:
        cls = request(ApiKey.SASL_AUTHENTICATE).cls
        for step in (b"one", b"two"):
            answer = yield ApiKey.SASL_AUTHENTICATE, 2, cls(auth_bytes=step)
            told.append(answer.auth_bytes)
            if answer.error_code:
                raise ConnectionError("refused")

    def answer(number: int, said: bytes, error: int = 0) -> bytes:
        codec = response(ApiKey.SASL_AUTHENTICATE)
        body = codec.encode(codec.cls(auth_bytes=said, error_code=error), 2)
        return framed(struct.pack(">i", number) + b"\0" + body)

    for error in (0, 58):
        side = Side(authenticate=mechanism)
        side.ask()
        side.exchange.opened()
        side.receive(greeted(APIS, 0) + answer(1, b"1"))
        assert [key for key, _, _ in side.sent()] == [18, 36, 36]
        if error:
            with pytest.raises(ConnectionError, match="refused"):
                side.receive(answer(2, b"no", error))
            assert not side.exchange.is_ready
        else:
            side.receive(answer(2, b"2"))
            assert side.sent() == [(60, 1, 3)]
    assert told == [b"1", b"2", b"1", b"no"]


def test_a_node_without_authentication_is_refused() -> None:
    def mechanism() -> Any:
        yield ApiKey.SASL_HANDSHAKE, 1, request(ApiKey.SASL_HANDSHAKE).cls(mechanism="PLAIN")

    side = Side(authenticate=mechanism)
    side.exchange.opened()
    with pytest.raises(ConnectionError, match="SaslHandshakeRequest"):
        side.receive(greeted(APIS, 0))
