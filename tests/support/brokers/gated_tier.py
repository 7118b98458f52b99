"""A broker whose tier begins behind a gate, and an older copy of its partition."""

import shutil
from pathlib import Path

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.gated_manager import SHUT, GatedManager
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient


class Gate:
    """Lets a tier reach its metadata topic when it starts, or not until it is opened."""

    def __init__(self, shut: Path) -> None:
        """Open; it is shut while there is a file `shut`."""
        self._shut = shut

    def open(self) -> None:
        self._shut.unlink()

    def close(self) -> None:
        """Hold up tiers that start from now on."""
        self._shut.touch()


def behind_gate(broker: BrokerProcess) -> Gate:
    """Let the broker's tiers begin behind a gate, which is open."""
    manager = f"{GatedManager.__module__}:{GatedManager.__name__}"
    broker.settings |= {"remote.log.metadata.manager.class.name": manager}
    return Gate(broker.directory / SHUT)


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
