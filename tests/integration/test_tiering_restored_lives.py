"""A partition put back from an older copy stays unhealthy over restarts and appends.

The tier begins behind a gate of the test: while it is shut nothing is validated.
"""

from pathlib import Path

import pytest

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.gated_tier import behind_gate, copy_of, deleted, put_back
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient
from tests.support.brokers.tiered_files import adopt, objects
from tests.support.brokers.tiered_partition import TIERED, MakeBroker, fill, reasons
from tests.support.brokers.tiered_topics import QUICK, create

FAILED = "kafka_server_BrokerTopicMetrics_RemoteCopyErrorsPerSec_total"


def append(broker: BrokerProcess, name: str, count: int) -> None:
    produce(broker, "orders", [(None, b"%s " % name.encode() + bytes(100_000))] * count)


def announced_and_not_copied(broker: BrokerProcess) -> None:
    """A segment above the older copy's end of which the metadata say STARTED, the store nothing."""
    _, end = end_offsets(broker, "orders")
    produce(broker, "orders", [(None, bytes(600_000))])  # begins a segment
    until(lambda: broker.local_segments("orders") == [end], "all below the copy's end are remote")
    away = broker.remote_directory.rename(broker.directory / "away")
    broker.remote_directory.write_text("not a directory")
    append(broker, "lost", 25)
    until(lambda: broker.metric(FAILED) >= 1, "a segment was announced, and copying fails")
    broker.kill()
    broker.remote_directory.unlink()
    away.rename(broker.remote_directory)


def is_lost(broker: BrokerProcess) -> bool:
    return any("orders-0: log end lost" in each for each in reasons(broker))


@pytest.mark.smoke
@pytest.mark.long(seconds=25)
def test_appends_to_an_older_copy_before_a_restart_do_not_hide_a_lost_end(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tiered=True)
    gate = behind_gate(broker)
    broker.start()
    end = fill(broker)
    broker.kill()
    older = copy_of(broker, tmp_path / "older")
    broker.start()
    until(lambda: reasons(broker) == [], "validated sound")
    announced_and_not_copied(broker)
    put_back(broker, older)
    gate.close()
    for _ in range(2):  # beyond all that was given; nobody validates
        broker.start()
        append(broker, "again", 20)
        broker.kill()
    before = objects(broker)
    gate.open()
    for _ in range(2):
        broker.start()
        until(lambda: is_lost(broker), "health is `red`")
        assert objects(broker) == before
        broker.kill()
    shown = adopt(broker, "--yes")
    assert f"given twice:        offsets {end} to " in shown
    broker.start()
    until(lambda: reasons(broker) == [], "health is green")
    append(broker, "continues", 1)
    found = read_all(broker, "orders")
    kinds = [value.split()[0].rstrip(b"\0") for _, _, value in found[end:]]
    assert kinds == [*[b"again"] * 40, b"goes"]
    broker.kill()
    broker.start()
    until(lambda: reasons(broker) == [], "what was adopted stays so, nothing announced since")
    append(broker, "continues", 25)
    until(lambda: len(broker.local_segments("orders")) == 1, "copied and expired here")
    assert read_all(broker, "orders")[: len(found)] == found
    broker.kill()
    broker.start()
    until(lambda: reasons(broker) == [], "health is green")


def test_lives_that_append_before_the_validation_are_no_loss(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True, settings=QUICK)
    gate = behind_gate(broker)
    broker.start()
    create(broker, "orders", **TIERED)
    count = 0
    for life in range(4):
        append(broker, "sound", 25)
        count += 25
        until(lambda: len(broker.local_segments("orders")) == 1, "copied and expired here")
        broker.kill()
        gate.close()
        for _ in range(life):
            broker.start()
            append(broker, "not validated", 15)
            count += 15
            broker.kill()
        gate.open()
        broker.start()
        append(broker, "perhaps validated", 5)
        count += 5
        until(lambda: reasons(broker) == [], "health is green")
        assert end_offsets(broker, "orders") == (0, count)
    assert "log end lost" not in broker.log_text()
    assert len(read_all(broker, "orders")) == count


@pytest.mark.long(seconds=20)
def test_remote_records_are_read_when_an_older_copy_begins_below_them(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tiered=True, settings=QUICK).start()
    end = fill(broker)
    broker.kill()
    older = copy_of(broker, tmp_path / "older")
    broker.start()
    append(broker, "later", 35)
    until(lambda: len(broker.local_segments("orders")) == 1, "copied and expired here")
    (remote_end,) = broker.local_segments("orders")
    log_start = end + 20
    with RawClient(broker) as client:
        assert deleted(client, log_start) == 0
    until(lambda: broker.remote_segments("orders")[0] > end, "what lies below is deleted")
    broker.kill()
    put_back(broker, older)
    broker.start()
    until(lambda: is_lost(broker), "health is `red`")
    broker.kill()
    assert f"offsets below {remote_end} are read from the remote store" in adopt(broker, "--yes")
    broker.start()
    until(lambda: end_offsets(broker, "orders") == (log_start, remote_end), "validated sound")
    append(broker, "continues", 1)
    found = [offset for offset, *_ in read_all(broker, "orders")]
    assert found == [*range(log_start, remote_end + 1)]
    assert reasons(broker) == []
