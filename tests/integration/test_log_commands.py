"""The remedy of a refused partition: `tidemark log inspect`, then `tidemark log accept`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until

MakeBroker = Callable[..., BrokerProcess]


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _lose_the_last_batch(directory: Path) -> int:
    """Cut the log at a batch border; the offset where it ends now."""
    path = max(directory.glob("*.log"))
    position, header = list(iter_batches(path.read_bytes()))[-1]
    path.write_bytes(path.read_bytes()[:position])
    return header.base_offset


@pytest.fixture
def broker(make_broker: MakeBroker) -> BrokerProcess:
    """Stopped cleanly; partition 0 of `orders` has lost its last batch since."""
    broker = make_broker()
    broker.settings = {"num.partitions": "1"}
    broker.start()
    for number in range(5):
        produce(broker, "orders", [(None, b"%d" % number)])
    produce(broker, "others", [(None, b"whole")])
    assert broker.terminate() == 0
    return broker


def _log(broker: BrokerProcess, *arguments: str) -> tuple[int, str]:
    done = broker.command("log", *arguments, "--config", str(broker.config_file))
    return done.returncode, done.stdout + done.stderr


@pytest.mark.smoke
def test_refused_partition_is_shown_accepted_and_served_again(broker: BrokerProcess) -> None:
    directory = broker.partition_directory("orders")
    end = _lose_the_last_batch(directory)
    broker.start()
    assert "orders-0" in until(lambda: broker.http("/health")[1], "an answer of /health")
    before = _files(directory)
    code, shown = _log(broker, "inspect", "orders", "0")
    assert code == 0, shown
    assert f"the log ends at offset {end}, but was flushed up to 5" in shown
    assert "refused:" in shown
    assert _files(directory) == before
    code, shown = _log(broker, "accept", "orders", "0")
    assert (code, _files(directory)) == (2, before), shown  # nobody answered the question
    code, shown = _log(broker, "accept", "orders", "0", "--yes")
    assert code == 0, shown
    assert set(_files(directory)) - set(before) == {str(directory / "tidemark-accepted")}
    assert broker.terminate() == 0
    broker.start()
    produce(broker, "orders", [(None, b"again")])
    # The lost offset 4 is not given a second time; a consumer passes over it.
    found = [(offset, value) for offset, _, value in read_all(broker, "orders")]
    assert found == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"3"), (5, b"again")]
    code, shown = _log(broker, "inspect", "orders", "0")
    assert (code, "nothing is refused" in shown) == (0, True), shown


def test_what_cannot_be_looked_at_is_said_in_one_line(broker: BrokerProcess) -> None:
    code, said = _log(broker, "inspect", "nothing", "0")
    assert (code, said.count("\n")) == (1, 1), said
    assert "nothing-0 is in none of log.dirs" in said
    code, said = _log(broker, "inspect", "__cluster_metadata", "0")
    assert (code, "its own recovery" in said) == (1, True), said
    code, said = _log(broker, "accept", "others", "0")
    assert (code, "nothing to accept" in said) == (0, True), said


def test_a_metadata_log_that_cannot_be_read_is_said_in_one_line(broker: BrokerProcess) -> None:
    metadata = broker.log_directory / "__cluster_metadata-0"
    log = max(metadata.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1  # it was closed cleanly: this is no torn end
    log.write_bytes(data)
    code, said = _log(broker, "inspect", "orders", "0")
    assert (code, said.count("\n")) == (1, 1), said
    assert str(log) in said
