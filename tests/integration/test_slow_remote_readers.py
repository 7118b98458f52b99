"""Clients that fetch remote bytes and take none of them do not stop those who do."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, running, until
from tests.support.brokers.raw_client import RawClient, build, fetch, fetch_fields, header
from tests.support.brokers.tiered_topics import TIERED, create, tiered_away

SLOW_CLIENTS = 64
QUESTIONS_EACH = 3
CACHE_BYTES = 12 << 20
VERSION = 11
VALUE = b"0123456789" * 6_000
BATCH_BYTES_MAX = 1 << 20
IN_VAIN_MAX = 20
"""Fetches without bytes, each of which has waited for half a second."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "log.segment.bytes": "1048576",
        "tidemark.remote.chunk.cache.bytes": str(CACHE_BYTES),
        "socket.send.buffer.bytes": "262144",
        "tidemark.connection.write.timeout.ms": "600000",
    }
    yield from running(BrokerProcess(tmp_path / "tiered", tiered=True, settings=settings))


class SlowClient(RawClient):
    """Asks for several segments and reads nothing of what it gets."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", broker.port))

    def ask_for(self, topic: str, offsets: list[int]) -> None:
        message = codec.request(ApiKey.FETCH)
        for offset in offsets:
            body = message.encode(build(message.cls, fetch_fields(topic, offset)), VERSION)
            self.send_frame(header(ApiKey.FETCH, VERSION) + body)

    def is_answered(self) -> bool:
        return len(self.socket.recv(4, socket.MSG_PEEK)) == 4


def test_a_client_that_reads_continues_beside_64_that_do_not(broker: BrokerProcess) -> None:
    create(broker, "orders", **TIERED)
    count = (SLOW_CLIENTS + QUESTIONS_EACH + 2) * (1 << 20) // len(VALUE)
    produce(broker, "orders", [(b"%d" % n, VALUE) for n in range(count)])
    tiered_away(broker, "orders")
    bases = broker.remote_segments("orders")
    assert len(bases) >= SLOW_CLIENTS + QUESTIONS_EACH
    with ExitStack() as stack:
        slow = [stack.enter_context(SlowClient(broker)) for _ in range(SLOW_CLIENTS)]
        for number, each in enumerate(slow):
            each.ask_for("orders", bases[number : number + QUESTIONS_EACH])
        until(lambda: all(each.is_answered() for each in slow), "each has some of its answer")
        good, at, in_vain = stack.enter_context(RawClient(broker)), 0, 0
        while at < bases[-1]:
            found = fetch(good, "orders", at)
            assert found.error_code == 0
            headers = [header for _, header in iter_batches(bytes(found.records or b""))]
            if not headers:
                in_vain += 1
                assert in_vain <= IN_VAIN_MAX, f"it does not get beyond offset {at}"
                continue
            assert headers[0].base_offset <= at
            at = headers[-1].next_offset
        lent = broker.metric("tidemark_remote_chunk_cache_leased_bytes")
        assert 0 < lent <= CACHE_BYTES * 3 / 4
        holders = broker.metric("tidemark_remote_chunk_cache_holders")
        assert holders <= SLOW_CLIENTS
        copied = broker.metric("tidemark_remote_chunk_cache_copied_bytes")
        assert 0 < copied <= holders * BATCH_BYTES_MAX
    until(
        lambda: not broker.metric("tidemark_remote_chunk_cache_holders"),
        "all is given back when the clients are gone",
    )
    assert not broker.metric("tidemark_remote_chunk_cache_copied_bytes")
