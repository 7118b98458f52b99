"""confluent-kafka (librdkafka) against a broker started as its user would."""

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: BrokerProcess, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    client = admin(broker)  # named: librdkafka ends what a dropped client was asked for
    client.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_come_back_as_sent(broker: BrokerProcess, codec: str, idempotent: bool) -> None:
    topic = f"confluent-{codec}-{idempotent}".lower()
    create(broker, topic)
    sent = [(f"k{n}".encode(), f"value {n} ".encode() * 20) for n in range(2_000)]
    produce(
        broker,
        topic,
        sent,
        **{"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5},
    )
    assert [(key, value) for _, key, value in read_all(broker, topic)] == sent


@pytest.mark.smoke
def test_offsets_rise_by_one_and_headers_and_nulls_survive(broker: BrokerProcess) -> None:
    create(broker, "confluent-headers")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("confluent-headers", key=None, value=None, headers=[("a", b"1"), ("a", None)])
    producer.produce("confluent-headers", key=b"", value=b"", timestamp=1_700_000_000_000)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("confluent-headers", 0, OFFSET_BEGINNING)])
    first, second = consumer.consume(2, 30)
    consumer.close()
    assert (first.offset(), first.key(), first.value()) == (0, None, None)
    assert first.headers() == [("a", b"1"), ("a", None)]
    assert (second.offset(), second.key(), second.value()) == (1, b"", b"")
    assert second.timestamp()[1] == 1_700_000_000_000


def test_a_topic_is_created_on_the_way_by_a_producer(broker: BrokerProcess) -> None:
    produce(broker, "confluent-auto", [(b"k", b"v")])
    assert [value for _, _, value in read_all(broker, "confluent-auto")] == [b"v"]


@pytest.mark.smoke
def test_admin_creates_describes_alters_and_deletes(broker: BrokerProcess) -> None:
    client = admin(broker)
    create(broker, "confluent-admin", 3, retention_ms="100000000")
    described = client.list_topics("confluent-admin", timeout=30).topics["confluent-admin"]
    assert sorted(described.partitions) == [0, 1, 2]
    resource = ConfigResource(ResourceType.TOPIC, "confluent-admin")
    assert client.describe_configs([resource])[resource].result(30)["retention.ms"].value == (
        "100000000"
    )
    change = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, "confluent-admin", incremental_configs=[change])
    client.incremental_alter_configs([changed])[changed].result(30)
    assert client.describe_configs([resource])[resource].result(30)["retention.ms"].value == "5000"
    client.delete_topics(["confluent-admin"])["confluent-admin"].result(30)
    assert "confluent-admin" not in client.list_topics(timeout=30).topics


def test_a_deleted_name_is_free_at_once(broker: BrokerProcess) -> None:
    client = admin(broker)
    for value in (b"first life", b"second life"):
        create(broker, "confluent-again")
        produce(broker, "confluent-again", [(b"k", value)])
        assert [v for _, _, v in read_all(broker, "confluent-again")] == [value]
        client.delete_topics(["confluent-again"])["confluent-again"].result(30)


@pytest.mark.smoke
def test_wrong_topics_are_refused_with_kafkas_codes(broker: BrokerProcess) -> None:
    client = admin(broker)
    create(broker, "confluent-taken")
    wrong = {
        "confluent-taken": (NewTopic("confluent-taken", 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        "a/b": (NewTopic("a/b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        "..": (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        "x" * 250: (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        "confluent-three": (
            NewTopic("confluent-three", 1, 3),
            KafkaError.INVALID_REPLICATION_FACTOR,
        ),
        "confluent-config": (
            NewTopic("confluent-config", 1, 1, config={"no.such": "1"}),
            KafkaError.INVALID_CONFIG,
        ),
        "__remote_log_metadata": (
            NewTopic("__remote_log_metadata", 1, 1),
            KafkaError.POLICY_VIOLATION,
        ),
        "__cluster_metadata": (NewTopic("__cluster_metadata", 1, 1), KafkaError.POLICY_VIOLATION),
    }
    for name, future in client.create_topics([topic for topic, _ in wrong.values()]).items():
        with pytest.raises(KafkaException) as raised:
            future.result(30)
        assert raised.value.args[0].code() == wrong[name][1], name


@pytest.mark.smoke
def test_list_offsets_answers_earliest_latest_and_by_time(broker: BrokerProcess) -> None:
    create(broker, "confluent-offsets")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(10):
        producer.produce("confluent-offsets", value=b"v", timestamp=1_700_000_000_000 + n * 1_000)
        producer.flush(30)
    client, partition = admin(broker), TopicPartition("confluent-offsets", 0)
    wanted = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 10,
        OffsetSpec.for_timestamp(1_700_000_004_500): 5,
        OffsetSpec.max_timestamp(): 9,
    }
    for spec, offset in wanted.items():
        assert client.list_offsets({partition: spec})[partition].result(30).offset == offset


def test_deleted_records_are_gone_and_the_rest_stays(broker: BrokerProcess) -> None:
    create(broker, "confluent-delete-records")
    produce(broker, "confluent-delete-records", [(None, b"%d" % n) for n in range(100)])
    partition = TopicPartition("confluent-delete-records", 0, 40)
    client = admin(broker)
    done = client.delete_records([partition])[partition].result(30)
    assert done.low_watermark == 40
    assert [offset for offset, _, _ in read_all(broker, "confluent-delete-records")] == list(
        range(40, 100)
    )


def test_a_consumer_of_the_new_group_protocol_gets_unsupported_version(
    broker: BrokerProcess,
) -> None:
    create(broker, "confluent-848")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "new", "group.protocol": "consumer"}
    )
    try:
        consumer.subscribe(["confluent-848"])
        told = consumer.poll(30)
        assert told is not None
        assert told.error().code() == KafkaError._FATAL
        assert "version not supported" in told.error().str()
    finally:
        consumer.close()


def test_a_transactional_producer_is_told_that_transactions_are_not_served(
    broker: BrokerProcess,
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(30)
    error = refused.value.args[0]
    assert error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert "Transactions are not served by this broker" in error.str()
