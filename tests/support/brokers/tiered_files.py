"""Files of a tiered partition, and what must hold once their damage is undone."""

from pathlib import Path

from kafka_protocol.files import epoch_checkpoint
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_partition import fill, reasons

CHAIN = "leader-epoch-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"


def directory_of(broker: BrokerProcess) -> Path:
    return broker.log_directory / "orders-0"


def objects(broker: BrokerProcess) -> set[Path]:
    return {path for path in broker.remote_paths() if path.is_file()}


def filled_over_epochs(broker: BrokerProcess) -> int:
    """Records of three leader epochs, of which all but the newest are only remote."""
    count = fill(broker)
    for _ in range(2):
        broker.kill()
        broker.start()
        produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
        count += 25
        until(lambda: len(list(directory_of(broker).glob("*.log"))) == 1, "expired here")
    entries = epoch_checkpoint.parse((directory_of(broker) / CHAIN).read_bytes())
    assert len(entries) == 3, entries
    return count


def assert_whole(broker: BrokerProcess, count: int, before: set[Path]) -> None:
    """All is served, nothing was deleted, nothing is wrong, and copying continues."""
    until(lambda: reasons(broker) == [], "health is green")
    assert len(read_all(broker, "orders")) == count
    assert before <= objects(broker)
    segments = len(broker.remote_segments("orders"))
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
    until(lambda: len(broker.remote_segments("orders")) > segments, "copying continues")
    assert len(read_all(broker, "orders")) == count + 25


def adopt(broker: BrokerProcess, *arguments: str) -> str:
    undo = broker.directory / "undo.json"
    config = ["--config", str(broker.config_file), "--undo-file", str(undo)]
    done = broker.command("remote", "adopt", "orders", "0", *config, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
