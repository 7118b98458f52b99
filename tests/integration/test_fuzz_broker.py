"""Bad bytes thrown at a running broker: a corpus, recorded requests with damage, and requests of
every served API and version, written by the grammar of the schemas, with a few wounds or none.

An answer is decoded whole and belongs to its request; a request without a wound is never the reason
of an end. All else ends the connection, with one line. After some hundred the broker is judged as
after each bad input. What was found once is a file of `tests/fuzz/corpus`, as sent.
"""

import json
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import create_topics
from broker.handlers.handler_table import APIS
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from tests.support.bad_input.conditions import WellAfterwards, make_health_topic
from tests.support.bad_input.stage import Stage
from tests.support.brokers.process import ROOT, BrokerProcess, running
from tests.support.brokers.raw_client import RawClient, create_topic
from tests.support.fuzz.exchange import Exchange, Sent
from tests.support.fuzz.grammar import RequestWriter
from tests.support.rounds import rounds

CORPUS = sorted((ROOT / "tests/fuzz/corpus").glob("*.bin"))
FRAMES = ROOT / "tests/golden/frames"
# Not CreateTopics: a damaged one may ask for thousands of partitions, and gets them.
DAMAGED_APIS = [
    "".join(word.capitalize() for word in api.__name__.rpartition(".")[2].split("_"))
    for api in APIS
    if api is not create_topics
]
SEED = int(os.environ.get("TIDEMARK_FUZZ_SEED") or 0) or random.SystemRandom().randrange(1, 10**6)
ROUNDS = rounds("TIDEMARK_FUZZ_ROUNDS", quick=3, full=30)
EACH_ROUND = 500
PIPELINED = 3
INTERESTING = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff")
WAITING = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH}
"""An answer may take as long as others like; the end of the stream ends the wait."""

pytestmark = [pytest.mark.rounds(seconds=200), pytest.mark.lasts(seconds=40)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        # A long poll in front of a broken request holds its connection for this time.
        "tidemark.connection.write.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
    }
    directory = tmp_path_factory.mktemp("fuzzed") / "broker"
    for one in running(BrokerProcess(directory, settings=settings)):
        with RawClient(one) as client:
            create_topic(client, "fuzz-plain", 2)
            create_topic(client, "fuzz-compact", cleanup_policy="compact")
        yield one


@pytest.fixture(scope="module")
def health_topic(broker: BrokerProcess) -> str:
    return make_health_topic(broker)


@pytest.fixture(autouse=True)
def well_afterwards(broker: BrokerProcess, health_topic: str) -> Iterator[None]:
    with WellAfterwards(broker, health_topic) as judge:
        stage = Stage(broker)
        yield
        with stage:
            pass
        judge.judge(stage, peak_bytes=100_000_000, may_close=True)


@pytest.mark.smoke
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_of_bad_bytes(broker: BrokerProcess, path: Path) -> None:
    Exchange(broker).throw(path.read_bytes())


@pytest.fixture(scope="module")
def recorded() -> list[bytes]:
    """Recorded requests, without their length prefix."""
    found = []
    for api in DAMAGED_APIS:
        for line in (FRAMES / f"{api}.jsonl").read_text(encoding="utf-8").splitlines():
            frame = bytes.fromhex(json.loads(line)["request_hex"])
            if len(frame) < 20_000:
                found.append(frame)
    assert len(found) > len(DAMAGED_APIS)
    return found


def replay(number: int) -> None:
    print(f"replay: TIDEMARK_FUZZ_SEED={SEED} TIDEMARK_FUZZ_ROUNDS={number + 1} pytest {__file__}")


@pytest.mark.parametrize("number", range(ROUNDS))
def test_recorded_requests_with_damage(
    broker: BrokerProcess, recorded: list[bytes], number: int
) -> None:
    replay(number)
    dice, exchange = random.Random(f"damage {SEED} {number}"), Exchange(broker)
    for _ in range(EACH_ROUND):
        frames = [damaged(dice, dice.choice(recorded)) for _ in range(dice.randint(1, PIPELINED))]
        data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        exchange.throw(data[: dice.randint(1, len(data))] if dice.random() < 0.1 else data)


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


@pytest.mark.parametrize("number", range(ROUNDS))
def test_requests_by_the_grammar(broker: BrokerProcess, number: int) -> None:
    replay(number)
    dice, exchange = random.Random(f"grammar {SEED} {number}"), Exchange(broker)
    with RawClient(broker) as client:
        served = client.ask(ApiKey.API_VERSIONS, 0, b"").api_keys
    writer = RequestWriter(dice)
    for _ in range(EACH_ROUND):
        exchange.send([request(dice, writer, served) for _ in range(dice.randint(1, PIPELINED))])
    assert exchange.answers > EACH_ROUND // 2


def request(dice: random.Random, writer: RequestWriter, served: list[Any]) -> Sent:
    api = dice.choice(served)
    schema = codec.request(api.api_key)
    version = dice.randint(max(api.min_version, schema.min_version), api.max_version)
    flexible = schema.is_flexible(version)
    body = writer.body(schema.struct, version, flexible=flexible)
    head = struct.pack(">hhih", api.api_key, version, dice.randrange(2**31), 4) + b"fuzz"
    tags = b"\0" if header_versions(api.api_key, version)[0] == 2 else b""
    return Sent(
        api_key=api.api_key,
        version=version,
        frame=head + tags + body,
        is_right=writer.wounds == 0,
        may_wait=api.api_key in WAITING,
        has_none=api.api_key == ApiKey.PRODUCE,
    )
