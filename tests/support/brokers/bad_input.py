"""What holds after every bad input: the broker is well, lean, silent, and has lost nothing."""

import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from kafka_protocol.records.records import build_batch
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient, create_topic, fetch, produce

GROWTH_BYTES_MAX = 50_000_000
ANSWER_S_MAX = 3.0
"""Beside other workers' tests; what holds a broker up holds it up for longer."""


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def batch(*values: bytes, **options: object) -> bytearray:
    """A producer's batch of now; one record a value."""
    now = int(time.time() * 1000)
    return build_batch([(now, None, value, []) for value in values], **options)  # type: ignore[arg-type]


def with_records(codec: int, payload: bytes, count: int = 1) -> bytes:
    """A batch whose records are `payload`, said to be compressed with `codec`."""
    data = batch(b"x")[:61] + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


@pytest.fixture(scope="module")
def health_topic(broker: BrokerProcess) -> str:
    name = f"health-{uuid.uuid4().hex[:8]}"
    with RawClient(broker) as client:
        create_topic(client, name)
        produce(client, name, batch(b"first"))
        fetch(client, name)
    return name


@pytest.fixture(autouse=True)
def well_afterwards(broker: BrokerProcess, health_topic: str) -> Iterator[None]:
    """The broker serves a fresh client quickly, and the case left nothing behind."""
    before, open_before = memory_bytes(broker.pid), descriptors(broker.pid)
    yield
    began = time.monotonic()
    with RawClient(broker) as client:
        offset = produce(client, health_topic, batch(b"still here")).base_offset
        assert b"still here" in bytes(fetch(client, health_topic, offset).records)
    assert time.monotonic() - began < ANSWER_S_MAX
    assert memory_bytes(broker.pid) - before < GROWTH_BYTES_MAX
    until(
        lambda: descriptors(broker.pid) <= open_before + 8,
        "descriptors are closed",
        deadline_s=10,
    )
    assert "Traceback" not in broker.log_text(), broker.log_tail()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker) as made:
        yield made


@pytest.fixture
def topic(client: RawClient) -> str:
    name = f"bad-{uuid.uuid4().hex[:8]}"
    create_topic(client, name)
    return name
