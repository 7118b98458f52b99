"""Bad bytes thrown at a live broker: a small corpus, then golden requests with random damage.

Whatever is sent, the broker answers, closes the connection, or waits for the rest; and it is well
afterwards. Failing inputs go to `tests/fuzz/corpus`.
"""

import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import ANSWER_S_MAX, batch, descriptors, memory_bytes
from tests.support.brokers.process import ROOT, BrokerProcess, running, until
from tests.support.brokers.raw_client import RawClient, create_topic, fetch, produce

CORPUS = sorted((ROOT / "tests/fuzz/corpus").glob("*.bin"))
FRAMES = ROOT / "tests/golden/frames"
# Not CreateTopics: a damaged one may ask for thousands of partitions, and gets them.
DAMAGED_APIS = (
    "ApiVersions",
    "DeleteRecords",
    "DeleteTopics",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeTopicPartitions",
    "Fetch",
    "IncrementalAlterConfigs",
    "InitProducerId",
    "ListOffsets",
    "Metadata",
    "OffsetForLeaderEpoch",
    "Produce",
)
SEEDS = range(4)
DAMAGED_EACH = 1_500
PIPELINED = 4
INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # A long poll in front of a broken request holds its connection for this time.
    settings = {"tidemark.connection.write.timeout.ms": "1000"}
    yield from running(BrokerProcess(tmp_path_factory.mktemp("fuzzed"), settings=settings))


@pytest.fixture(scope="module")
def requests() -> list[bytes]:
    """Recorded requests, without their length prefix."""
    found = []
    for api in DAMAGED_APIS:
        for line in (FRAMES / f"{api}.jsonl").read_text(encoding="utf-8").splitlines():
            frame = bytes.fromhex(json.loads(line)["request_hex"])
            if len(frame) < 20_000:
                found.append(frame)
    assert len(found) > len(DAMAGED_APIS)
    return found


@pytest.fixture(autouse=True)
def well_afterwards(broker: BrokerProcess) -> Iterator[None]:
    topic = f"well.{time.monotonic_ns()}"
    with RawClient(broker) as client:
        create_topic(client, topic)
    memory, open_before = memory_bytes(broker.pid), descriptors(broker.pid)
    yield
    began = time.monotonic()
    with RawClient(broker) as client:
        offset = produce(client, topic, batch(b"still here")).base_offset
        assert b"still here" in bytes(fetch(client, topic, offset).records)
        made = client.ask(ApiKey.METADATA, 1, {"topics": None}).topics
    assert time.monotonic() - began < ANSWER_S_MAX
    assert memory_bytes(broker.pid) - memory < 50_000_000
    partitions = sum(len(one.partitions) for one in made)
    allowed = open_before + 8 + 4 * partitions  # a partition keeps its active files open
    until(lambda: descriptors(broker.pid) <= allowed, "descriptors are closed")
    assert "Traceback" not in broker.log_text(), broker.log_tail()
    assert "unexpected error" not in broker.log_text(), broker.log_tail()


def throw(broker: BrokerProcess, data: bytes) -> None:
    """Send, end the stream, and take what comes until the broker ends it too."""
    with socket.create_connection(("127.0.0.1", broker.port), 10) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
        except (BrokenPipeError, ConnectionResetError):
            return


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_of_bad_bytes(broker: BrokerProcess, path: Path) -> None:
    throw(broker, path.read_bytes())


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_requests(broker: BrokerProcess, requests: list[bytes], seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(DAMAGED_EACH):
        frames = [damaged(dice, dice.choice(requests)) for _ in range(dice.randint(1, PIPELINED))]
        data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        throw(broker, data[: dice.randint(1, len(data))] if dice.random() < 0.1 else data)


def damaged(dice: random.Random, frame: bytes) -> bytes:
    """A copy with one to four wounds; the header's key and version mostly stay whole."""
    data = bytearray(frame)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(0 if dice.random() < 0.05 else 8, len(data))
        match dice.randrange(5):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                piece = dice.choice(INTERESTING)
                data[at : at + len(piece)] = piece
            case 2:
                del data[at : at + dice.randint(1, 8)]
            case 3:
                data[at:at] = dice.randbytes(dice.randint(1, 8))
            case _:
                data[at:] = data[dice.randrange(len(data)) :]
        if len(data) <= 8:
            return bytes(frame)
    return bytes(data)
