"""What brokers hear from an active controller, step by step, as Apache Kafka 4.3.1 answered."""

import json
from pathlib import Path

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.kafka.broker_talk import BrokerTalk
from tests.support.worlds.controller_listener import Listener

TALK = Path(__file__).parents[3] / "golden" / "controller" / "broker-talk.json"
DIFFERS = {
    # Kafka refuses the next life of a broker that it let go, while the session lasts.
    "broker 1 life 3 registers (v4) -> 101": "0 new epoch of 1, life 3",
    "broker 3 life 2 registers (v4) -> 101": "0 new epoch of 3, life 2",
    "broker 2 life 2 registers (v4) -> 101": "0 new epoch of 2, life 2",
}


def expected(line: str) -> str:
    said = line.partition(" -> ")[0]
    return f"{said} -> {DIFFERS[line]}" if line in DIFFERS else line


async def test_brokers_hear_what_kafka_says(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    handlers = {
        ApiKey.BROKER_REGISTRATION: listener.registration,
        ApiKey.BROKER_HEARTBEAT: listener.heartbeat,
        ApiKey.CREATE_TOPICS: listener.create,
    }
    talk = BrokerTalk(
        lambda key, version, asked: listener.ask(handlers[key], asked, version), "cluster"
    )
    recorded = json.loads(TALK.read_text())
    assert recorded["kafka_version"] == "4.3.1"
    assert set(DIFFERS) <= set(recorded["lines"])
    assert await talk.tell() == [expected(line) for line in recorded["lines"]]
