"""Much is asked over one connection, and no answer is read."""

import select
import socket

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import On, case, cases
from tests.support.bad_input.rows.framing import framed
from tests.support.bad_input.stage import Stage
from tests.support.brokers.raw_client import RawClient, build, header

SENT_BYTES_MAX = 256 << 20
STANDSTILL_S = 1.0


def send_all_that_fits(client: RawClient, request: bytes) -> None:
    data, sent = framed(request) * 10_000, 0
    client.socket.setblocking(False)
    try:
        for _ in range(100):
            sent += client.socket.send(data)
    except BlockingIOError:
        pass
    assert sent


@case("N008")
def answers_are_never_read(stage: Stage) -> None:
    send_all_that_fits(stage.client, header(ApiKey.API_VERSIONS, 0))
    stage.connect().ask(ApiKey.METADATA, 1, {"topics": []})


@case("N008", on=On.NARROW)
def answers_are_not_read_within_the_deadline(stage: Stage) -> None:
    stage.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    send_all_that_fits(stage.client, header(ApiKey.API_VERSIONS, 0))
    stage.closes("took no byte of its answers for 1000 ms", stage.client)


def sent_until_no_more_is_taken(client: RawClient, frame: bytes) -> int:
    """Send the same request again and again; gives the bytes that were taken."""
    client.socket.setblocking(False)
    data, sent = memoryview(frame * 2), 0
    while sent < SENT_BYTES_MAX and select.select([], [client.socket], [], STANDSTILL_S)[1]:
        begin = sent % len(frame)
        sent += client.socket.send(data[begin : begin + len(frame)])
    return sent


@cases(
    {f"N008 requests of {topics} topics": topics for topics in (1_500, 2_500, 15_000)},
    peak_bytes=48 << 20,
)
def answers_to_large_requests_are_never_read(stage: Stage, topics: int) -> None:
    """Frames of 50 KiB to 0.5 MiB, each answered with about as much."""
    message = codec.request(ApiKey.METADATA)
    names = [{"name": f"none-{i:025}"} for i in range(topics)]
    asked = build(message.cls, {"topics": names, "allow_auto_topic_creation": False})
    frame = framed(header(ApiKey.METADATA, 4) + message.encode(asked, 4))
    sent = sent_until_no_more_is_taken(stage.client, frame)
    assert len(frame) < sent < SENT_BYTES_MAX, "reading continued"
    other = stage.connect()
    other.send(frame)
    assert len(other.receive_frame()) > len(frame) // 2
