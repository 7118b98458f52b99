"""Sends frames to a broker and judges what comes back: right answers, or an end with one line."""

import struct
from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_WR

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from tests.support.bad_input.conditions import CONTROL
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import Closed, RawClient

BAD_WORDS = ("Traceback", "unexpected error", " ERROR ")


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its frame, and how its answer is read.

    Attributes:
        api_key: of the frame.
        version: of the frame.
        frame: without its length.
        is_right: it has an answer, whatever that says.
        may_wait: the answer may be long in coming.
        has_none: it may be a Produce with acks of 0.
    """

    api_key: int
    version: int
    frame: bytes
    is_right: bool
    may_wait: bool
    has_none: bool


def receive(client: RawClient, asked: list[Sent]) -> None:
    """Read an answer and decode all of it; what it answers, and what has none, leaves `asked`."""
    frame = client.receive_frame()
    while frame[:4] != asked[0].frame[4:8]:
        assert asked.pop(0).has_none, "an answer out of turn"
    sent = asked.pop(0)
    version = sent.version
    if sent.api_key == ApiKey.API_VERSIONS and frame[4:6] == b"\0\x23":
        version = 0  # UNSUPPORTED_VERSION has that shape
    position = 4 + header_versions(sent.api_key, version)[1]
    _, end = codec.response(sent.api_key).decode(frame, version, position)
    assert end == len(frame), f"{len(frame) - end} bytes after the answer"


def peer_of(client: RawClient) -> str:
    """What a log line about a connection has."""
    return f"peer={client.address[0]}:{client.address[1]} "


class Exchange:
    """Talks to one broker, and reads its log as it grows."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._read = broker.log_file.stat().st_size
        self.answers = 0

    def send(self, requests: list[Sent]) -> None:
        """Send all at once over a connection of their own; the stream ends behind them.

        Raises:
            AssertionError: with the bytes; they belong into the corpus.
        """
        data = b"".join(struct.pack(">i", len(one.frame)) + one.frame for one in requests)
        try:
            self._send(requests, data)
        except (AssertionError, Closed, OSError, MalformedMessageError) as error:
            raise AssertionError(f"{error!r}\nas a file of the corpus: {data.hex()}") from error

    def throw(self, data: bytes) -> None:
        """Send bytes that need not be frames, and take whatever comes."""
        with RawClient(self._broker) as client:
            peer = peer_of(client)
            with suppress(Closed, OSError):
                client.send(data)
                client.socket.shutdown(SHUT_WR)
                while client.socket.recv(1 << 16):
                    pass
        self._judge_log(peer, lines_max=1)

    def _send(self, requests: list[Sent], data: bytes) -> None:
        waits = any(one.may_wait or one.has_none for one in requests)
        is_right = all(one.is_right for one in requests) and not waits
        asked = list(requests)
        with RawClient(self._broker) as client:
            peer = peer_of(client)
            with suppress(*() if is_right else (Closed, OSError)):
                client.send(data)
                if not is_right:
                    client.socket.shutdown(SHUT_WR)
                while asked:
                    receive(client, asked)
                    self.answers += 1
        self._judge_log(peer, lines_max=0 if is_right else 1)

    def _judge_log(self, peer: str, *, lines_max: int) -> None:
        said = self.new_lines()
        assert not [line for line in said if any(word in line for word in BAD_WORDS)], said
        about = [line for line in said if peer in line]
        assert len(about) <= lines_max, about

    def new_lines(self) -> list[str]:
        """What the broker has logged since the last look."""
        with self._broker.log_file.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        self._read += len(text)
        decoded = text.decode()
        assert not CONTROL.search(decoded), repr(decoded)
        return decoded.splitlines()
