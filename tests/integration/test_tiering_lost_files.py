"""Files of a tiered partition that are lost, cut or old: no record is, and health ends green."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import until
from tests.support.brokers.tiered_files import (
    CHAIN,
    LOG_STARTS,
    adopt,
    assert_whole,
    directory_of,
    filled_over_epochs,
    objects,
)
from tests.support.brokers.tiered_partition import MakeBroker, fill, first_value, reasons
from tests.support.brokers.tiered_topics import delete_records

pytestmark = pytest.mark.lasts(seconds=60)


def lose(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def put_back_old(path: Path) -> None:
    """As it was before the last leader epoch but one, with nothing that tells its age."""
    first, *_, last = epoch_checkpoint.parse(path.read_bytes())
    path.write_bytes(epoch_checkpoint.dump([first, EpochEntry(*last)]))
    (path.parent / "tidemark-checksums").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lose, id="lost"),
        pytest.param(empty, id="empty", marks=pytest.mark.long),
        pytest.param(cut, id="cut", marks=pytest.mark.long),
        pytest.param(put_back_old, id="old", marks=pytest.mark.long),
    ],
)
def test_d1_a_damaged_chain_is_read_from_the_store(
    make_broker: MakeBroker, damage: Callable[[Path], None]
) -> None:
    broker = make_broker(tiered=True).start()
    count = filled_over_epochs(broker)
    before = objects(broker)
    path = directory_of(broker) / CHAIN
    chain = epoch_checkpoint.parse(path.read_bytes())
    broker.kill()
    damage(path)
    broker.start()
    assert_whole(broker, count, before)
    assert epoch_checkpoint.parse(path.read_bytes())[:3] == chain
    assert "epoch chain restored from the store" in broker.log_text()


def test_a_lost_checkpoint_of_log_starts_is_what_records_carry(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True).start()
    count = fill(broker)
    delete_records(broker, "orders", 5)
    # A record that carries it: of the next copy.
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
    until(lambda: len(broker.remote_segments("orders")) >= 6, "copied")
    broker.kill()
    lose(broker.log_directory / LOG_STARTS)
    broker.start()
    until(lambda: "offset=5 reason=rebuilt" in broker.log_text(), "the log start is known")
    assert reasons(broker) == []
    assert len(read_all(broker, "orders")) == count + 20, "what was deleted stays so"


def test_chain_and_log_starts_lost_together_come_back(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True).start()
    count = filled_over_epochs(broker)
    before = objects(broker)
    broker.kill()
    lose(directory_of(broker) / CHAIN)
    lose(broker.log_directory / LOG_STARTS)
    broker.start()
    until(lambda: "offset=0 reason=rebuilt" in broker.log_text(), "the log start is known")
    assert_whole(broker, count, before)


def test_h3_a_partition_restored_from_an_older_copy_is_red_and_nothing_is_deleted(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tiered=True).start()
    fill(broker)
    broker.kill()
    copy = tmp_path / "older"
    shutil.copytree(directory_of(broker), copy)
    checkpoints = {
        path.name: path.read_bytes()
        for path in broker.log_directory.iterdir()
        if path.is_file() and ("checkpoint" in path.name or path.name == "tidemark-checksums")
    }
    broker.start()
    segments = len(broker.remote_segments("orders"))
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
    until(lambda: len(broker.remote_segments("orders")) > segments + 1, "copied")
    broker.kill()
    before = objects(broker)
    shutil.rmtree(directory_of(broker))
    shutil.copytree(copy, directory_of(broker))
    for name, content in checkpoints.items():
        (broker.log_directory / name).write_bytes(content)
    broker.start()
    until(lambda: any("log end lost" in each for each in reasons(broker)), "health is red")
    (reason,) = reasons(broker)
    assert "orders-0: log end lost" in reason
    assert "Way out" in reason
    assert isinstance(first_value(broker), bytes), "what is there is served"
    assert objects(broker) == before


def test_a_lost_log_end_is_adopted_above_all_that_was_given(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tiered=True).start()
    fill(broker)
    broker.kill()
    copy = tmp_path / "older"
    shutil.copytree(directory_of(broker), copy)
    broker.start()
    produce(broker, "orders", [(None, b"later%d" % n + bytes(100_000)) for n in range(25)])
    until(lambda: len(list(directory_of(broker).glob("*.log"))) == 1, "expired here")
    remote_end = int(min(directory_of(broker).glob("*.log")).stem)
    broker.kill()
    before = objects(broker)
    shutil.rmtree(directory_of(broker))
    shutil.copytree(copy, directory_of(broker))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (broker.log_directory / name).unlink(missing_ok=True)
    broker.start()
    until(lambda: any("log end lost" in each for each in reasons(broker)), "health is red")
    refused = broker.command("remote", "adopt", "orders", "0", "-c", str(broker.config_file))
    assert "locked by another process" in refused.stderr
    broker.kill()
    files = {path.name: path.read_bytes() for path in directory_of(broker).iterdir()}
    asked = broker.command("remote", "adopt", "orders", "0", "-c", str(broker.config_file))
    assert (asked.returncode, "[y/N]" in asked.stdout) == (1, True), "nobody answers"
    assert {path.name: path.read_bytes() for path in directory_of(broker).iterdir()} == files
    shown = adopt(broker, "--log-end", str(remote_end + 7), "--yes")
    assert f"offsets {remote_end} to {remote_end + 6}, a gap" in shown
    changed = {path.name for path in directory_of(broker).iterdir()} - set(files)
    assert changed == {"tidemark-accepted"}
    broker.start()
    until(lambda: reasons(broker) == [], "health is green")
    produce(broker, "orders", [(None, b"new")])
    found = [offset for offset, *_ in read_all(broker, "orders")]
    assert found == [*range(remote_end), remote_end + 7]
    assert before <= objects(broker)
    for _ in range(2):  # once with what was accepted, once without
        broker.kill()
        broker.start()
        until(lambda: reasons(broker) == [], "health is green")
    assert [offset for offset, *_ in read_all(broker, "orders")] == found
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
    until(lambda: len(list(directory_of(broker).glob("*.log"))) == 1, "copied and expired here")
    assert [offset for offset, *_ in read_all(broker, "orders")][: len(found)] == found
    assert reasons(broker) == []


@pytest.mark.long(seconds=15)
def test_a_chain_that_no_index_tells_is_adopted_from_a_named_segment(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(tiered=True).start()
    count = filled_over_epochs(broker)
    path = directory_of(broker) / CHAIN
    chain = epoch_checkpoint.parse(path.read_bytes())
    *_, named, last = sorted(broker.remote_directory.rglob("*.indexes"))
    before = objects(broker)
    aside = broker.directory / "aside"
    broker.kill()
    lose(path)
    last.rename(aside)
    broker.start()
    until(lambda: any("chain lost" in each for each in reasons(broker)), "health is red")
    assert any("remote adopt" in each for each in reasons(broker))
    broker.kill()
    segment = named.name.removesuffix(".indexes").split("-", 1)[1]
    adopt(broker, f"--segment={segment}", "--yes")
    assert epoch_checkpoint.parse(path.read_bytes())[:3] == chain[:3]
    aside.rename(last)
    broker.start()
    assert_whole(broker, count, before)
    assert "epoch chain restored from the store" not in broker.log_text()
