"""A damaged batch, or a foreign setting, in `__remote_log_metadata`: real brokers."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_partition import TIERED, fill, reasons
from tests.support.brokers.tiered_topics import create, delete_records

pytestmark = pytest.mark.lasts(seconds=20)

MakeBroker = Callable[..., BrokerProcess]


def metadata_logs(broker: BrokerProcess, topic: str) -> list[Path]:
    """Logs of the metadata partition that names the topic."""
    found = broker.log_directory.glob("__remote_log_metadata-*/*.log")
    return sorted(path for path in found if topic.encode() in path.read_bytes())


def two_topics(broker: BrokerProcess) -> tuple[str, str]:
    """Two tiered topics whose remote segments are listed in different metadata partitions."""
    fill(broker, "topic-0")
    [first] = metadata_logs(broker, "topic-0")
    for number in range(1, 20):
        name = f"topic-{number}"
        create(broker, name, **TIERED)
        produce(broker, name, [(None, b"%d" % n + bytes(100_000)) for n in range(45)])
        until(lambda n=name: metadata_logs(broker, n), f"records of {name}")  # type: ignore[misc]
        if metadata_logs(broker, name) != [first]:
            return "topic-0", name
    raise AssertionError("all topics lie in one metadata partition")


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def without_cache(broker: BrokerProcess) -> None:
    """What was read of the topic before is gone: all of it is read again."""
    shutil.rmtree(broker.log_directory / "remote-log-metadata")


def unreadable(broker: BrokerProcess) -> str:
    def found() -> list[str]:
        return [each for each in reasons(broker) if "cannot be read on" in each]

    return until(found, "health names the damaged batch")[0]


def objects_of(broker: BrokerProcess, topic: str) -> set[int]:
    return set(broker.remote_segments(topic))


def test_a_damaged_batch_stops_only_its_metadata_partition_until_restored(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(tiered=True).start()
    damaged, other = two_topics(broker)
    until(lambda: objects_of(broker, other), "something is there that can be deleted")
    broker.terminate()
    [path] = metadata_logs(broker, damaged)
    before = path.read_bytes()
    flip(path, 80)
    without_cache(broker)
    broker.start()
    reason = unreadable(broker)
    assert f"{path.parent.name} cannot be read on: its batch at offset 0 is damaged" in reason
    copied, others = objects_of(broker, damaged), objects_of(broker, other)
    for topic in (damaged, other):
        produce(broker, topic, [(None, bytes(100_000)) for _ in range(30)])
        delete_records(broker, topic, 30)
    until(lambda: objects_of(broker, other) - others, "the other topic is copied")
    until(lambda: others - objects_of(broker, other), "and deleted")
    assert objects_of(broker, damaged) == copied
    assert len(read_all(broker, other)) == 45 + 30 - 30
    assert broker.log_text().count("tier process is up") == 2, "one in each life of the broker"
    broker.terminate()
    path.write_bytes(before)
    broker.start()
    until(lambda: reasons(broker) == [], "health is green")
    until(lambda: copied - objects_of(broker, damaged), "deletion continues")
    assert len(read_all(broker, damaged)) == 45 + 30 - 30


def test_without_a_copy_a_damaged_batch_is_given_up_by_command(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True)
    broker.settings["rlmm.config.remote.log.metadata.topic.num.partitions"] = "1"
    broker.start()
    count = fill(broker)
    broker.terminate()
    [path] = metadata_logs(broker, "orders")
    flip(path, path.stat().st_size // 2)
    without_cache(broker)
    broker.start()
    assert "tidemark log inspect __remote_log_metadata 0" in unreadable(broker)
    before = objects_of(broker, "orders")
    broker.terminate()
    broker.start()
    (reason,) = until(lambda: reasons(broker), "the partition is offline")
    assert "__remote_log_metadata-0 is offline" in reason
    assert "tidemark log accept __remote_log_metadata 0" in reason
    asked = "__remote_log_metadata", "0", "-c", str(broker.config_file)
    done = broker.command("log", "accept", *asked, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    broker.terminate()
    broker.start()
    hole = until(lambda: [each for each in reasons(broker) if "a hole" in each], "what is lost")
    assert objects_of(broker, "orders") == before
    remedy = int(hole[0].rpartition("DeleteRecords to ")[2])
    delete_records(broker, "orders", remedy)
    until(lambda: reasons(broker) == [], "health is green")
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(30)])
    until(lambda: objects_of(broker, "orders") - before, "copying continues")
    assert len(read_all(broker, "orders")) == count + 30 - remedy
