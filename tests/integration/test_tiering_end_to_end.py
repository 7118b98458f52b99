"""A topic's life in the remote tier, with small segments and a real store and real clients."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.process import BrokerProcess, running, until
from tests.support.quorum.broker_beside import ALONE_OR_BESIDE

MakeBroker = Callable[..., BrokerProcess]
SMALL_SEGMENTS = {"log.segment.bytes": "1048576"}
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(6_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]


@pytest.fixture(scope="module", **ALONE_OR_BESIDE)
def shared_tiered_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The lone node of all modules, and a broker whose controllers are other processes."""
    directory = tmp_path_factory.mktemp("tiered")
    yield from running(request.param(directory, tiered=True, settings=SMALL_SEGMENTS))


def create(broker: BrokerProcess, topic: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def alter(broker: BrokerProcess, topic: str, **config: str) -> None:
    changes = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def wait_until_only_the_active_segment_is_local(broker: BrokerProcess, topic: str) -> None:
    until(
        lambda: len(broker.local_segments(topic)) == 1 and len(broker.remote_segments(topic)) > 1,
        "all but the active segment are remote, and local no more",
    )


@pytest.mark.smoke
def test_old_records_come_back_from_the_remote_tier(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker = shared_tiered_broker
    create(broker, topic, TIERED)
    produce(broker, topic, RECORDS)
    wait_until_only_the_active_segment_is_local(broker, topic)
    assert end_offsets(broker, topic) == (0, len(RECORDS))
    assert read_all(broker, topic) == AS_READ
    assert read_all(broker, topic, start=1_234) == AS_READ[1_234:]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition(topic, 0)
    found = admin.list_offsets({partition: OffsetSpec.for_timestamp(0)})[partition].result(60)
    assert found.offset == 0


@pytest.mark.smoke
def test_records_stay_readable_after_kill_and_restart(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker = shared_tiered_broker
    create(broker, topic, TIERED)
    produce(broker, topic, RECORDS)
    wait_until_only_the_active_segment_is_local(broker, topic)
    broker.kill()
    broker.start()
    assert read_all(broker, topic) == AS_READ


def test_switching_it_on_later_copies_what_is_there(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker = shared_tiered_broker
    create(broker, topic, {})
    produce(broker, topic, RECORDS)
    assert broker.remote_segments(topic) == []
    alter(broker, topic, remote_storage_enable="true", local_retention_bytes="1")
    wait_until_only_the_active_segment_is_local(broker, topic)
    assert read_all(broker, topic) == AS_READ


@pytest.mark.smoke
def test_a_deleted_topic_leaves_nothing_in_the_store_and_its_name_is_free(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker = shared_tiered_broker
    create(broker, topic, TIERED)
    produce(broker, topic, RECORDS)
    wait_until_only_the_active_segment_is_local(broker, topic)
    old = set(broker.remote_directory.glob(f"{topic}-*/**/*.manifest"))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    create(broker, topic, TIERED)
    produce(broker, topic, RECORDS[:10])
    assert read_all(broker, topic) == AS_READ[:10]
    until(lambda: not any(path.exists() for path in old), "the old topic's objects are gone")


def test_a_deleted_topic_leaves_no_metrics(shared_tiered_broker: BrokerProcess, topic: str) -> None:
    """A test suite that makes and deletes topics would have pages that grow for ever."""
    broker = shared_tiered_broker

    def samples() -> list[str]:
        status, page = broker.http("/metrics")
        assert status == 200
        lines = page.splitlines()
        assert "tidemark_remote_passes_total" in page, "the tier's part is there"
        return [line.split("{")[0] for line in lines if f'topic="{topic}"' in line]

    stays = f"stays-{topic}"
    create(broker, stays, TIERED)
    produce(broker, stays, RECORDS)
    create(broker, topic, TIERED)
    produce(broker, topic, RECORDS)
    wait_until_only_the_active_segment_is_local(broker, stays)
    wait_until_only_the_active_segment_is_local(broker, topic)
    assert read_all(broker, topic) == AS_READ
    before = set(samples())
    assert {
        "kafka_server_BrokerTopicMetrics_RemoteFetchBytesPerSec_total",
        "kafka_server_BrokerTopicMetrics_RemoteCopyBytesPerSec_total",
        "tidemark_remote_store_request_ms_bucket",
    } <= before
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: not samples(), "no sample is of the deleted topic")
    until(lambda: not broker.remote_segments(topic), "its objects are gone")
    assert not samples(), "and none comes back"
    assert broker.metric("kafka_server_BrokerTopicMetrics_RemoteCopyBytesPerSec_total") > 0


def test_deleted_records_leave_the_store(shared_tiered_broker: BrokerProcess, topic: str) -> None:
    broker = shared_tiered_broker
    create(broker, topic, TIERED)
    produce(broker, topic, RECORDS)
    wait_until_only_the_active_segment_is_local(broker, topic)
    cut = broker.remote_segments(topic)[2] + 1
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition(topic, 0, cut)
    assert admin.delete_records([partition])[partition].result(30).low_watermark == cut
    assert end_offsets(broker, topic) == (cut, len(RECORDS))
    until(
        lambda: len([base for base in broker.remote_segments(topic) if base < cut]) == 1,
        "of the segments below the new start only the straddling one is left",
    )
    assert read_all(broker, topic) == AS_READ[cut:]


def test_the_store_away_stops_neither_producing_nor_local_reading(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker = shared_tiered_broker
    create(broker, topic, {"remote.storage.enable": "true"})
    away = broker.remote_directory.with_name("away")
    broker.remote_directory.mkdir(exist_ok=True)
    broker.remote_directory.rename(away)
    broker.remote_directory.write_text("not a directory")
    produce(broker, topic, RECORDS)
    assert read_all(broker, topic) == AS_READ
    broker.remote_directory.unlink()
    away.rename(broker.remote_directory)
    until(lambda: len(broker.remote_segments(topic)) > 1, "copying catches up")
    assert read_all(broker, topic) == AS_READ


@pytest.mark.smoke
def test_a_killed_tier_comes_back_by_itself(
    shared_tiered_broker: BrokerProcess, topic: str
) -> None:
    broker = shared_tiered_broker
    create(broker, topic, TIERED)
    produce(broker, topic, RECORDS[:3_000])
    until(lambda: len(broker.remote_segments(topic)) > 1, "something is in the store")
    first = until(broker.tier_pid, "the tier runs")
    broker.kill_tier()
    until(lambda: broker.tier_pid() not in (None, first), "another tier process runs")
    produce(broker, topic, RECORDS[3_000:])
    wait_until_only_the_active_segment_is_local(broker, topic)
    assert read_all(broker, topic) == AS_READ


def test_the_guarded_topic_refuses_clients(shared_tiered_broker: BrokerProcess) -> None:
    broker = shared_tiered_broker
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = until(
        lambda: admin.list_topics(timeout=30).topics.get("__remote_log_metadata"),
        "the metadata topic is there",
    )
    assert len(topic.partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, "__remote_log_metadata")
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["retention.ms"].value == "-1"
    assert config["cleanup.policy"].value == "delete"
    for attempt in (
        lambda: admin.delete_topics(["__remote_log_metadata"])["__remote_log_metadata"].result(30),
        lambda: alter(broker, "__remote_log_metadata", retention_ms="1000"),
        lambda: produce(broker, "__remote_log_metadata", [(b"k", b"v")]),
    ):
        with pytest.raises((KafkaException, AssertionError), match=r"(?i)policy"):
            attempt()
