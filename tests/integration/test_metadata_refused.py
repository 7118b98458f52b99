"""The metadata log of a whole broker: what it takes, it starts with; what is damaged, it names."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kafka_protocol.records.batch import iter_batches
from tests.support.brokers.process import BrokerProcess

MakeBroker = Callable[..., BrokerProcess]
LIST = "leader.replication.throttled.replicas"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_two_appends_of_24_kb_do_not_keep_the_broker_from_starting(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker().start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)

    def append(first: int) -> None:
        value = ",".join(f"{n}:1" for n in range(first, first + 3_500))
        entry = ConfigEntry(LIST, value, incremental_operation=AlterConfigOpType.APPEND)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    append(0)
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        append(3_500)
    assert broker.terminate() == 0
    broker.start()
    assert "t" in admin.list_topics(timeout=30).topics
    assert broker.terminate() == 0


@pytest.mark.smoke
def test_a_damaged_metadata_log_ends_the_start_with_file_and_position(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker().start()
    broker.kill()
    directory = broker.log_directory / "__cluster_metadata-0"
    log = directory / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    position, header = list(iter_batches(data))[3]
    data[position + 70] ^= 1
    log.write_bytes(data)
    before = contents(directory)
    ended = broker.start_to_end()
    assert ended.returncode == 1
    for word in (str(log), f"position {position}", f"offset {header.base_offset}", "Restore"):
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr
    assert contents(directory) == before
    data[position + 70] ^= 1
    log.write_bytes(data)
    broker.start()
    assert broker.terminate() == 0
