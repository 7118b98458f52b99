"""Cluster metadata of an earlier time: leader epochs that are too low are raised by themselves."""

import shutil

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.metadata_copies import copy_of_metadata, put_back
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_files import assert_whole, directory_of, objects
from tests.support.brokers.tiered_partition import MakeBroker, fill, reasons

CHAIN = "leader-epoch-checkpoint"
IDEMPOTENT = {"enable.idempotence": True}


def chain_of(broker: BrokerProcess) -> list[EpochEntry]:
    return epoch_checkpoint.parse((directory_of(broker) / CHAIN).read_bytes())


def metadata_bytes(broker: BrokerProcess) -> int:
    """How much tiers have written."""
    logs = broker.log_directory.glob("__remote_log_metadata-*/*.log")
    return sum(path.stat().st_size for path in logs)


@pytest.mark.long(seconds=15)
def test_restored_older_metadata_get_higher_leader_epochs(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(tiered=True).start()
    fill(broker)
    assert broker.terminate() == 0
    copy = copy_of_metadata(broker, "older")
    broker.start()
    for _ in range(3):
        produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
        broker.kill()
        broker.start()
    until(lambda: len(broker.local_segments("orders")) == 1, "expired here")
    broker.kill()
    before, used = objects(broker), chain_of(broker)[-1].epoch
    put_back(broker, copy)
    broker.start()
    assert f"written under leader epoch {used}, and the metadata say" in broker.log_text()
    assert_whole(broker, 120, before)
    assert chain_of(broker)[-1].epoch == used + 1
    broker.kill()
    broker.start()
    until(lambda: reasons(broker) == [], "the next start needs no more of it")
    assert chain_of(broker)[-1].epoch == used + 3


def test_records_of_a_later_leader_epoch_are_unhealthy_until_it_is_raised(
    make_broker: MakeBroker,
) -> None:
    """The partition and the cluster metadata are older copies, of the same records."""
    broker = make_broker(tiered=True).start()
    count = fill(broker)
    assert broker.terminate() == 0
    metadata = copy_of_metadata(broker, "older-metadata")
    partition = broker.directory / "older-partition"
    shutil.copytree(directory_of(broker), partition)
    for _ in range(3):
        written = metadata_bytes(broker)
        broker.start()
        until(lambda size=written: metadata_bytes(broker) > size, "its barrier is written")
        broker.kill()
    before, used = objects(broker), chain_of(broker)[-1].epoch
    put_back(broker, metadata)
    shutil.rmtree(directory_of(broker))
    shutil.copytree(partition, directory_of(broker))
    broker.start()
    until(lambda: "leader epoch too low" in broker.log_text(), "it is unhealthy by that name")
    assert_whole(broker, count, before)
    assert chain_of(broker)[-1].epoch == used + 1


@pytest.mark.long(seconds=12)
def test_producer_ids_that_older_metadata_give_again_make_no_duplicates(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker().start()
    produce(broker, "plain", [(None, b"first")], **IDEMPOTENT)
    produce(broker, "other", [(None, b"an older id than the next ones")], **IDEMPOTENT)
    assert broker.terminate() == 0
    copy = copy_of_metadata(broker, "older")
    broker.start()
    produce(broker, "plain", [(None, b"second")], **IDEMPOTENT)
    broker.kill()
    put_back(broker, copy)
    broker.start()
    produce(broker, "plain", [(None, b"third")], **IDEMPOTENT)
    assert [value for *_, value in read_all(broker, "plain")] == [b"first", b"second", b"third"]


@pytest.mark.smoke
def test_a_leader_epoch_of_nonsense_stays_unhealthy_with_the_remedy(
    make_broker: MakeBroker,
) -> None:
    """A batch's leader epoch is outside of its checksum; the chain's file is lost with it."""
    broker = make_broker().start()
    produce(broker, "plain", [(None, b"kept")])
    broker.kill()
    path = broker.log_directory / "plain-0" / f"{0:020}.log"
    content = path.read_bytes()
    path.write_bytes(content[:12] + (2**31 - 2).to_bytes(4, "big") + content[16:])
    (path.parent / CHAIN).unlink()
    (path.parent / "tidemark-checksums").unlink(missing_ok=True)
    broker.start()
    (reason,) = until(
        lambda: [each for each in reasons(broker) if "damage" in each], "health is `red`"
    )
    assert f"{2**31 - 2} was used before" in reason
    assert "Remedy" in reason
    broker.kill()
    path.write_bytes(content)
    (path.parent / CHAIN).unlink()
    broker.start()
    until(lambda: reasons(broker) == [], "health is green")
    assert [value for *_, value in read_all(broker, "plain")] == [b"kept"]
