"""Each API in each version that a broker serves, over a socket: its error, its cut, its delay."""

import socket
import struct
from collections.abc import Iterator
from typing import Self

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

import tidemark
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.raw_client import header
from tests.support.samples.named_requests import codes_of, named_request

pytestmark = pytest.mark.lasts(seconds=15)

CODE = 94
"""INCONSISTENT_VOTER_SET: no API answers it by itself."""
PATIENCE_S = 20


class Line:
    """One connection to the broker; another one after a cut."""

    def __init__(self, broker: tidemark.Broker) -> None:
        host, _, port = broker.bootstrap_servers.partition(":")
        self._address = (host, int(port))
        self.reopen()

    def reopen(self) -> None:
        self._socket = socket.create_connection(self._address, PATIENCE_S)

    def send(self, key: ApiKey, version: int) -> None:
        body = codec.request(key).encode(named_request(key, version), version)
        frame = header(key, version, 1) + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece, "the connection ended"
            data += piece
        return data

    def answer(self) -> bytes:
        return self.receive(struct.unpack(">i", self.receive(4))[0])

    def ends(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
        finally:
            self._socket.close()
            self.reopen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[tidemark.Broker]:
    with tidemark.Broker(settings={"remote.log.storage.system.enable": "false"}) as running:
        yield running


def served(broker: tidemark.Broker) -> list[tuple[ApiKey, int]]:
    """As the broker says it to clients."""
    with Line(broker) as line:
        line.send(ApiKey.API_VERSIONS, 3)
        answer, _ = codec.response(ApiKey.API_VERSIONS).decode(line.answer(), 3, 4)
    return [
        (ApiKey(one.api_key), version)
        for one in answer.api_keys
        for version in range(one.min_version, one.max_version + 1)
        if (one.api_key, version) not in NOT_SERVED
    ]


NOT_SERVED = {(ApiKey.PRODUCE, version) for version in range(3)}
"""Advertised for an old client, see `ApiHandler.advertised_min_version`."""


def test_an_error_comes_in_the_shape_of_each_version(broker: tidemark.Broker) -> None:
    found = served(broker)
    assert len(found) > 60
    with Line(broker) as line:
        for key, version in found:
            with broker.faults.add(api=int(key), error=CODE, count=1) as fault:
                line.send(key, version)
                codes = codes_in(line.answer(), key, version)
                assert fault.hits == 1
            assert codes, (key, version)
            assert set(codes) == {CODE}, (key, version)


def test_a_cut_and_a_delay_are_of_every_api(broker: tidemark.Broker) -> None:
    newest = dict(served(broker))
    with Line(broker) as line:
        for key, version in newest.items():
            for cut in ("before_serving", "after_serving"):
                with broker.faults.add(api=int(key), cut=cut, count=1) as fault:
                    line.send(key, version)
                    assert line.ends(), (key, cut)
                    assert fault.hits == 1
            plain = broker.faults.add(api=int(key), delay_ms=1, count=1)
            line.send(key, version)
            assert plain.wait().hits == 1
            codes = codes_in(line.answer(), key, version)
            assert CODE not in codes, "it was served"


def codes_in(frame: bytes, key: ApiKey, version: int) -> list[int]:
    """Error codes of a response, as another library reads it to its last byte."""
    schema = load_response_schema(int(key), version)
    head, at = entity_reader(schema.__header_schema__)(frame, 0)
    assert head.correlation_id == 1
    answer, size = entity_reader(schema)(frame, at)
    assert at + size == len(frame), (key, version)
    return codes_of(answer)
