"""kafka-python: a client in pure Python that speaks the newest versions."""

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.support.brokers.process import BrokerProcess


@pytest.mark.smoke
def test_records_come_back_as_sent(broker: BrokerProcess) -> None:
    sent = [(b"%d" % n, b"value %d" % n) for n in range(500)]
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="gzip")
    try:
        futures = [producer.send("kpy", key=k, value=v, partition=0) for k, v in sent]
        assert [future.get(30).offset for future in futures] == list(range(500))
    finally:
        producer.close(10)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30_000,
    )
    try:
        consumer.assign([TopicPartition("kpy", 0)])
        found = [(record.key, record.value) for _, record in zip(sent, consumer, strict=False)]
        assert consumer.end_offsets([TopicPartition("kpy", 0)]) == {TopicPartition("kpy", 0): 500}
    finally:
        consumer.close()
    assert found == sent


def test_admin_creates_and_deletes(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([NewTopic("kpy-admin", 2, 1)])
        assert "kpy-admin" in admin.list_topics()
        admin.delete_topics(["kpy-admin"])
        assert "kpy-admin" not in admin.list_topics()
    finally:
        admin.close()


def test_admin_lists_log_directories_and_config_resources(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([NewTopic("kpy-dirs", 2, 1)])
        (node,) = admin.describe_log_dirs()
        names = admin.list_config_resources()
        topics = admin.list_config_resources(["TOPIC"])
    finally:
        admin.close()
    (directory,) = node["log_dirs"]
    assert (node["broker"], directory["log_dir"]) == (broker.node_id, str(broker.log_directory))
    held = {topic["name"]: topic["partitions"] for topic in directory["topics"]}
    assert [one["partition_index"] for one in held["kpy-dirs"]] == [0, 1]
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    assert names["broker"] == names["broker_logger"] == [str(broker.node_id)]
    assert "kpy-dirs" in names["topic"]
    assert topics == {"topic": names["topic"]}
