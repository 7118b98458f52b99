"""A broker whose tier is off keeps its tiered replicas offline, and never serves them as plain."""

import logging
from pathlib import Path

import pytest

from broker.replica import hosting
from broker.replica.target_replica import why_barred
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from metadata_topic.controller.brokers import fence_broker
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.records import MetadataRecord, make
from tests.support.worlds.data_plane import NODE, NOW_MS
from tests.support.worlds.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    return OneBroker(tmp_path)


def switched(topic: str, value: str | None = "true") -> MetadataRecord:
    return make(
        "ConfigRecord",
        resource_type=int(ResourceType.TOPIC),
        resource_name=topic,
        name="remote.storage.enable",
        value=value,
    )


def files(broker: OneBroker) -> dict[str, bytes]:
    """All files of partitions, by their path."""
    return {
        str(path): path.read_bytes()
        for root in broker.paths
        for folder in root.iterdir()
        if folder.is_dir()
        for path in folder.iterdir()
    }


def test_without_the_tier_tiered_replicas_are_offline_and_keep_their_files(
    broker: OneBroker,
) -> None:
    broker.served("tides", 2)
    broker.served("plain")
    broker.commit(switched("tides"))
    broker.logs.close(clean=True)
    before = {name: data for name, data in files(broker).items() if "tides" in name}
    broker.start(has_tier=False)
    assert broker.ends("plain", 1) == [3]
    for number in range(2):
        tp = TopicPartition("tides", number)
        assert "remote.log.storage.system.enable=true" in broker.replicas.offline[tp]
        with pytest.raises(KafkaStorageError) as refused:
            broker.replicas.require(*tp)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.logs.get(tp) is None, "no retention and no cleaner sees it"
    assert broker.offline_replicas("tides") == [[NODE], [NODE]]
    broker.logs.checkpoint_recovery_points()
    broker.logs.close(clean=True)
    assert {name: data for name, data in files(broker).items() if "tides" in name} == before
    broker.start()
    assert broker.replicas.offline == {}
    assert broker.ends("tides", 2) == [3, 3]


def test_a_new_tiered_replica_is_not_begun_before_the_tier_is_there(broker: OneBroker) -> None:
    """Controllers of Apache Kafka place it anywhere."""
    broker.start(has_tier=False)
    broker.commit(switched("tides"))
    broker.create("tides")
    assert "tides" in str(broker.replicas.offline)
    assert (broker.asked, files(broker)) == ({}, {})
    broker.start()
    broker.commit_assignments()
    assert broker.ends("tides", 1) == [0]


def test_a_topic_switched_to_tiered_goes_offline_at_once_and_stays_so(
    broker: OneBroker,
) -> None:
    broker.settings = {"retention_ms": 1_000}
    broker.start(has_tier=False)
    broker.served("tides")
    broker.served("plain")
    partition = broker.replicas.require("tides", 0)
    broker.commit(switched("tides"), switched("plain", "false"))
    assert partition.deleted, "whoever waits there was told"
    with pytest.raises(KafkaStorageError):
        broker.replicas.require("tides", 0)
    expired = broker.logs.run_retention(NOW_MS + 10_000)
    assert {tp.topic for tp, _, _ in expired} == {"plain"}
    epoch = broker.image.brokers[NODE].epoch
    broker.commit(*fence_broker(broker.image, broker_id=NODE, broker_epoch=epoch).records)
    before = files(broker)
    broker.change_leader_epoch(partition.log.topic_id, 0)
    assert files(broker) == before, "its leader epochs, too"
    with pytest.raises(KafkaStorageError):
        broker.replicas.require("tides", 0)
    broker.start()
    assert broker.ends("tides", 1) == [3]
    assert broker.replicas.require("tides", 0).log.log_start_offset == 0


@pytest.mark.parametrize(("has_tier", "questions"), [(False, ["tides"]), (True, [])])
def test_a_topic_that_is_switched_on_is_validated_and_logged_once(
    broker: OneBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    has_tier: bool,
    questions: list[str],
) -> None:
    broker.start(has_tier=has_tier)
    broker.served("tides", 3)
    asked = []

    def counted(image: MetadataImage, topic: str, *, has_tier: bool) -> str:
        asked.append(topic)
        return why_barred(image, topic, has_tier=has_tier)

    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(hosting, "why_barred", counted)
    broker.commit(switched("tides"))
    assert asked == questions
    assert [line.partition(": its topic")[0] for line in caplog.messages] == [
        f"topic is offline: {name}: partitions=3" for name in questions
    ]
    assert len(broker.replicas.offline) == (0 if has_tier else 3)


def test_a_topic_switched_to_tiered_during_creation_blocks_no_request(
    broker: OneBroker,
) -> None:
    broker.start(has_tier=False)
    topic_id = broker.create("tides")
    broker.commit(switched("tides"))
    broker.commit_assignments()
    assert broker.replicas.hosting.settled([topic_id]) is None
    with pytest.raises(KafkaStorageError):
        broker.replicas.require("tides", 0)


def test_a_barred_topic_can_be_deleted_with_its_files(broker: OneBroker) -> None:
    topic_id = (b"tides" * 16)[:16]
    broker.served("tides")
    broker.commit(switched("tides"))
    broker.start(has_tier=False)
    broker.commit(make("RemoveTopicRecord", topic_id=topic_id))
    assert broker.replicas.offline == {}
    assert not any("tides-0/" in name for name in files(broker))
