"""The remedies of a lost log end and of a lost chain, by command: health ends green."""

import shutil
from pathlib import Path

import pytest

from kafka_protocol.files import epoch_checkpoint
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import until
from tests.support.brokers.tiered_files import (
    CHAIN,
    adopt,
    assert_whole,
    directory_of,
    filled_over_epochs,
    objects,
)
from tests.support.brokers.tiered_partition import MakeBroker, fill, reasons

pytestmark = pytest.mark.lasts(seconds=30)


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
    until(lambda: any("log end lost" in each for each in reasons(broker)), "health is `red`")
    refused = broker.command("remote", "adopt", "orders", "0", "-c", str(broker.config_file))
    assert "locked by another process" in refused.stderr
    broker.kill()
    files = {path.name: path.read_bytes() for path in directory_of(broker).iterdir()}
    asked = broker.command("remote", "adopt", "orders", "0", "-c", str(broker.config_file))
    assert (asked.returncode, "give --yes" in asked.stderr) == (2, True), "nobody can be asked"
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
    path.unlink()
    last.rename(aside)
    broker.start()
    until(lambda: any("chain lost" in each for each in reasons(broker)), "health is `red`")
    assert any("remote adopt" in each for each in reasons(broker))
    broker.kill()
    segment = named.name.removesuffix(".indexes").split("-", 1)[1]
    adopt(broker, f"--segment={segment}", "--yes")
    assert epoch_checkpoint.parse(path.read_bytes())[:3] == chain[:3]
    aside.rename(last)
    broker.start()
    assert_whole(broker, count, before)
    assert "epoch chain restored from the store" not in broker.log_text()
