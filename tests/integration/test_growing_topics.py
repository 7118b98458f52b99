"""Topics that get more partitions while clients use them (CreatePartitions), as clients see it.

Only a real client shows that a running consumer finds the partitions by itself, and that keys go
where Kafka's clients look for them; only a real tier, that it takes partitions on that its topic
did not have when it was switched on.
"""

from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from kafka.partitioner.default import murmur2

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import (
    TIERED,
    admin_of,
    as_read,
    create,
    delete_topic,
    tiered_away,
    values,
)

GROWN = 4
KEYS = [b"key-%d" % n for n in range(60)]


def grow(broker: BrokerProcess, topic: str, count: int, **options: object) -> None:
    admin = admin_of(broker)
    admin.create_partitions([NewPartitions(topic, count, **options)])[topic].result(30)


def partitions_of(broker: BrokerProcess, topic: str) -> list[int]:
    return sorted(admin_of(broker).list_topics(topic, timeout=30).topics[topic].partitions)


def send_by_key(broker: BrokerProcess, topic: str, value: bytes) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"}
    producer = Producer(settings)  # a new one: it knows the partitions of now
    for key in KEYS:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(60) == 0


def place_of(key: bytes, partitions: int) -> int:
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)


class Members:
    """Two members of a group, which look for new partitions five times a second."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.found: dict[tuple[bytes, bytes], int] = {}
        self._consumers = [
            Consumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": f"group-of-{topic}",
                    "auto.offset.reset": "earliest",
                    "topic.metadata.refresh.interval.ms": 200,
                    "metadata.max.age.ms": 200,
                }
            )
            for _ in range(2)
        ]
        for one in self._consumers:
            one.subscribe([topic])

    def assigned(self) -> Sequence[list[int]]:
        """Take what has come, and say which partitions each has."""
        for one in self._consumers:
            message = one.poll(0.05)
            while message is not None:
                assert message.error() is None
                self.found[message.key(), message.value()] = message.partition()
                message = one.poll(0)
        return [sorted(each.partition for each in one.assignment()) for one in self._consumers]

    def close(self) -> None:
        for one in self._consumers:
            one.close()


@pytest.mark.smoke
def test_keys_move_and_a_running_group_shares_the_new_partitions(
    broker: BrokerProcess, topic: str
) -> None:
    create(broker, topic)
    members = Members(broker, topic)
    try:
        send_by_key(broker, topic, b"before")
        until(lambda: (members.assigned(), len(members.found) == len(KEYS))[1], "all is read")
        assert set(members.found.values()) == {0}
        grow(broker, topic, GROWN)
        assert partitions_of(broker, topic) == list(range(GROWN))
        until(
            lambda: sorted(map(len, members.assigned())) == [GROWN // 2, GROWN // 2],
            "the group has shared the new partitions",
        )
        send_by_key(broker, topic, b"after")
        until(lambda: (members.assigned(), len(members.found) == 2 * len(KEYS))[1], "all is read")
    finally:
        members.close()
    now = {key: at for (key, value), at in members.found.items() if value == b"after"}
    assert now == {key: place_of(key, GROWN) for key in KEYS}
    assert set(now.values()) == set(range(GROWN))


@pytest.mark.smoke
def test_the_tier_copies_and_reads_the_new_partitions_of_its_topic(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker, records = shared_tiered_broker, values(1_400)
    create(broker, topic, **TIERED)
    produce(broker, topic, records[:700])
    tiered_away(broker, topic)
    grow(broker, topic, 2)
    produce(broker, topic, records[700:], partition=1)
    tiered_away(broker, topic, 1)
    assert read_all(broker, topic, 1) == as_read(records[700:])
    broker.kill()
    broker.start()
    for partition, sent in enumerate((records[:700], records[700:])):
        assert read_all(broker, topic, partition) == as_read(sent)
        at = TopicPartition(topic, partition)
        admin = admin_of(broker)
        assert admin.list_offsets({at: OffsetSpec.earliest()})[at].result(60).offset == 0
    delete_topic(broker, topic)
    until(
        lambda: not [*broker.remote_directory.glob(f"{topic}-*/**/*.manifest")],
        "nothing of either partition is left in the store",
    )


def test_what_cannot_be_is_refused_and_what_is_only_checked_is_not_done(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker = shared_tiered_broker
    create(broker, topic, 2)
    grow(broker, topic, 3, replica_assignment=[[broker.node_id]])
    for name, count, options, code in (
        (topic, 3, {}, KafkaError.INVALID_PARTITIONS),
        (topic, 2, {}, KafkaError.INVALID_PARTITIONS),
        (topic, 4, {"replica_assignment": [[77]]}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
        ("nobody", 4, {}, KafkaError.UNKNOWN_TOPIC_OR_PART),
        ("__remote_log_metadata", 99, {}, KafkaError.POLICY_VIOLATION),
    ):
        with pytest.raises(KafkaException) as raised:
            grow(broker, name, count, **options)
        assert raised.value.args[0].code() == code, name
    admin = admin_of(broker)  # it must outlive its request
    admin.create_partitions([NewPartitions(topic, 9)], validate_only=True)[topic].result(30)
    assert partitions_of(broker, topic) == [0, 1, 2]


def replace(admin: AdminClient, topic: str, configs: dict[str, str]) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config=configs)
    with pytest.warns(DeprecationWarning, match="Use incremental_alter_configs"):
        asked = admin.alter_configs([resource])
    asked[resource].result(30)


def test_the_old_alter_configs_never_disables_tiering_by_omission(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    """Only the client's own rounds show that a read, a change and a write keep what was there."""
    broker = shared_tiered_broker
    create(broker, topic, retention_ms="7000", **TIERED)
    admin, resource = admin_of(broker), ConfigResource(ResourceType.TOPIC, topic)

    def own() -> dict[str, str]:
        described = admin.describe_configs([resource])[resource].result(30)
        return {name: one.value for name, one in described.items() if one.source == 1}

    replace(admin, topic, TIERED | {"segment.bytes": "2000000"})
    assert own() == TIERED | {"segment.bytes": "2000000"}
    with pytest.raises(KafkaException, match="remote data would be left behind") as raised:
        replace(admin, topic, {"segment.bytes": "3000000"})
    assert raised.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert own() == TIERED | {"segment.bytes": "2000000"}
    replace(admin, topic, own() | {"retention.ms": "86400000"})
    assert own() == TIERED | {"segment.bytes": "2000000", "retention.ms": "86400000"}
