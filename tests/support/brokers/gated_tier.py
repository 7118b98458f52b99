"""A broker whose tier comes in by a gate, and an older copy of its partition."""

import shutil
from pathlib import Path

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.gate import Gate
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient


def behind(gate: Gate, broker: BrokerProcess) -> BrokerProcess:
    """Let the broker's tier come in by the gate, and clients as ever."""
    properties = broker.properties()
    tier = "TIER://127.0.0.1"
    clients = properties["listeners"].split(",")[0]
    broker.settings |= {
        "listeners": f"{properties['listeners']},{tier}:{gate.target_port}",
        "advertised.listeners": f"{clients},{tier}:{gate.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TIER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "remote.log.metadata.manager.listener.name": "TIER",
    }
    return broker


def copy_of(broker: BrokerProcess, aside: Path) -> Path:
    """The directory of the partition and the checkpoints of its log directory."""
    shutil.copytree(broker.partition_directory("orders"), aside / "orders-0")
    for path in broker.log_directory.iterdir():
        if path.is_file() and ("checkpoint" in path.name or path.name == "tidemark-checksums"):
            shutil.copy(path, aside)
    return aside


def put_back(broker: BrokerProcess, aside: Path) -> None:
    shutil.rmtree(broker.partition_directory("orders"))
    shutil.copytree(aside, broker.log_directory, dirs_exist_ok=True)


def deleted(client: RawClient, offset: int) -> int:
    asked = {"partition_index": 0, "offset": offset}
    fields = {"topics": [{"name": "orders", "partitions": [asked]}], "timeout_ms": 500}
    answer = client.ask(ApiKey.DELETE_RECORDS, 2, fields)
    return int(answer.topics[0].partitions[0].error_code)
