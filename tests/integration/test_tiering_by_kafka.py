"""A directory that Apache Kafka tiered to LocalTieredStorage is taken over by our broker."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from kafka_protocol.records.batch import HEADER_SIZE, iter_batches, write_crc
from kafka_protocol.records.records import build_batch, iter_records
from rlmm import records
from rlmm.events import SegmentUpdated
from rsm_plugins.segment import SegmentState
from tests.support.brokers.clients import Read, produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import admin_of, as_read, values
from tests.support.kafka.peer import SMALL_INDEXES, KafkaPeer
from tests.support.kafka.tiered import NAME as KAFKAS_LAYOUT
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

pytestmark = [pytest.mark.lasts(seconds=45), pytest.mark.jvm, pytest.mark.slow]

TOPIC = "tides"
PER_PARTITION = 800
MadeByKafka = dict[str, Path]
TakeOver = Callable[..., BrokerProcess]
KAFKAS_STORE = Path("remote-tier/kafka-tiered-storage")


@pytest.fixture(scope="module")
def by_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MadeByKafka]:
    """Kafka's directory with a topic of two tiered partitions: as SIGKILL and a stop leave it."""
    require_kafka_tools()
    home = tmp_path_factory.mktemp("kafka")
    peer = KafkaPeer(home / "data", SMALL_INDEXES)
    try:
        peer.start()
        tier_a_topic(peer)
        peer.kill()
        made = {"killed": copied(home / "data", home / "killed")}
        peer.start()
        peer.stop()
        made["stopped"] = copied(home / "data", home / "stopped")
    finally:
        print(peer.log_tail())
    yield made
    shutil.rmtree(home)


def tier_a_topic(peer: KafkaPeer) -> None:
    """Produce to both partitions until Kafka has copied and dropped all but the active segment."""
    settings = {
        "remote.storage.enable": "true",
        "segment.bytes": "1048576",
        "local.retention.bytes": "1",
    }
    words = [w for key, value in settings.items() for w in ("--config", f"{key}={value}")]
    kafka_tool(
        "topics", "--bootstrap-server", peer.bootstrap, "--create", "--topic", TOPIC,
        "--partitions", "2", *words,
    )  # fmt: skip
    for partition in (0, 1):
        produce(peer, TOPIC, sent(partition), partition)  # type: ignore[arg-type]
    for partition in (0, 1):
        folder = peer.data / "logs" / f"{TOPIC}-{partition}"
        store = peer.data / KAFKAS_STORE
        until(
            lambda folder=folder, store=store, partition=partition: (  # type: ignore[misc]
                len(list(folder.glob("*.log"))) == 1
                and len(list(store.glob(f"{TOPIC}-{partition}-*/*.log"))) >= 3
            ),
            f"Kafka dropped the copied segments of partition {partition}",
        )


def sent(partition: int) -> list[tuple[bytes, bytes]]:
    return values(PER_PARTITION, partition * 10_000)


def copied(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
    return target


@pytest.fixture
def take_over(by_kafka: MadeByKafka, tmp_path: Path) -> Iterator[TakeOver]:
    """Our broker on a copy of Kafka's directory, not started yet."""
    made: list[BrokerProcess] = []

    def take(how: str = "stopped", plugin: str | None = KAFKAS_LAYOUT) -> BrokerProcess:
        directory = copied(by_kafka[how], tmp_path / "taken")
        one = BrokerProcess(directory, tiered=True)
        one.log_file = tmp_path / "ours.log"
        if plugin is not None:
            one.store = {
                "remote.log.storage.manager.class.name": plugin,
                "rsm.config.dir": str(one.remote_directory),
            }
        one.settings["log.segment.bytes"] = "1048576"
        made.append(one)
        return one

    yield take
    for one in made:
        one.close()
        print(one.log_tail(200))


def reasons(broker: BrokerProcess) -> list[str]:
    found: list[str] = broker.health()["reasons"]
    return found


def served(broker: BrokerProcess, partition: int) -> list[Read]:
    """All records, once the log start is known: after SIGKILL Kafka's checkpoint has no entry."""
    until(lambda: first_offset(broker, partition) == 0, "the log starts at 0")
    return read_all(broker, TOPIC, partition)


def first_offset(broker: BrokerProcess, partition: int) -> int | None:
    """The log start, None while the broker answers that it does not know."""
    asked = {TopicPartition(TOPIC, partition): OffsetSpec.earliest()}
    admin = admin_of(broker)
    (answer,) = admin.list_offsets(asked, request_timeout=10).values()
    error = answer.exception(30)
    return None if error is not None else int(answer.result().offset)


class Kept:
    """What Kafka left in a directory and nobody may take away."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._store = self._files(broker.directory / KAFKAS_STORE, "*")
        self._local = self._files(broker.log_directory, f"{TOPIC}-*/*.log")
        self._topic = self._files(broker.log_directory, "__remote_log_metadata-*/*.log")
        assert len(self._store) >= 30
        assert any(self._topic.values())

    def check(self) -> None:
        """All objects are the same; what left a local log is in the store; no record was lost."""
        assert {path: path.read_bytes() for path in self._store} == self._store
        now = self._files(self._broker.directory / KAFKAS_STORE, "*.log").values()
        for path, data in self._local.items():
            assert path.exists() or any(data and one.startswith(data) for one in now), path
        for path, data in self._topic.items():
            assert path.read_bytes().startswith(data), path

    @staticmethod
    def _files(folder: Path, pattern: str) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


def passes(broker: BrokerProcess) -> None:
    """Until the tier has gone over its partitions a few times."""
    name = "tidemark_remote_passes_total"
    first = broker.metric(name)
    until(lambda: broker.metric(name) >= first + 6, "passes of the tier")


@pytest.mark.parametrize("how", [pytest.param("stopped", marks=pytest.mark.long), "killed"])
def test_what_kafka_tiered_is_served_and_tiering_continues(how: str, take_over: TakeOver) -> None:
    broker = take_over(how)
    kept = Kept(broker)
    # Kafka's topic has five partitions; the setting counts only where we make the topic.
    broker.settings["rlmm.config.remote.log.metadata.topic.num.partitions"] = "50"
    broker.start()
    for partition in (0, 1):
        assert served(broker, partition) == as_read(sent(partition))
    more = values(500, PER_PARTITION)
    produce(broker, TOPIC, more)
    until(lambda: broker.local_segments(TOPIC)[0] >= PER_PARTITION, "our segments are copied")
    assert served(broker, 0) == as_read(sent(0)) + as_read(more, PER_PARTITION)
    until(lambda: reasons(broker) == [], "health is green")
    assert "__remote_log_metadata exists with 5 partitions" in broker.log_text()
    assert "refused a record" not in broker.log_text()
    store = broker.directory / KAFKAS_STORE
    assert len(list(store.glob(f"{TOPIC}-0-*/*.log"))) >= 5
    kept.check()


def test_without_kafkas_objects_health_names_them_and_nothing_is_deleted(
    take_over: TakeOver,
) -> None:
    broker = take_over(plugin=None)
    kept = Kept(broker)
    broker.start()
    with pytest.raises(AssertionError, match="nothing after offset 0"):
        read_all(broker, TOPIC, silence_s=3)
    named = until(
        lambda: [each for each in reasons(broker) if "is missing in the store" in each],
        "health names the object",
    )
    assert named[0].startswith(f"tier: {TOPIC}-0: remote segment ")
    assert " from offset 0: " in named[0]
    passes(broker)
    assert broker.terminate() == 0
    kept.check()
    assert not deletions(broker)


def test_keyed_records_and_tombstones_of_a_later_kafka_are_gone_over(take_over: TakeOver) -> None:
    broker = take_over()
    written = write_as_a_later_kafka(broker)
    kept = Kept(broker)
    broker.start()
    for partition in (0, 1):
        assert served(broker, partition) == as_read(sent(partition))
    name = "tidemark_remote_metadata_records"
    for outcome in ("skipped tombstone", "skipped unknown"):
        until(
            lambda outcome=outcome: broker.metric(name, outcome=outcome) == written,  # type: ignore[misc]
            f"{outcome}: {written}",
        )
    until(lambda: reasons(broker) == [], "health is green")
    passes(broker)
    kept.check()
    assert not deletions(broker)
    broker.terminate()
    broker.start()
    assert served(broker, 0) == as_read(sent(0))
    until(lambda: broker.metric(name, outcome="read") > 0, "our barriers are read")
    assert broker.metric(name, outcome="skipped tombstone") == 0, "it begins where it was"


def write_as_a_later_kafka(broker: BrokerProcess) -> int:
    """Append to each metadata partition in use; returns to how many.

    A finished copy once more with a key, a tombstone with that key, a record of an unknown kind.
    """
    count = 0
    for path in broker.log_directory.glob("__remote_log_metadata-*/*.log"):
        data = path.read_bytes()
        if not data:
            continue
        place, header = list(iter_batches(data))[-1]
        *_, last = iter_records(data, place)
        key = b"segment"
        batch = build_batch(
            [
                (last.timestamp, key, last.value, []),
                (last.timestamp, key, None, []),
                (last.timestamp, b"other", b"\x01\x03\x00later", []),
            ],
            base_offset=last.offset + 1,
            leader_epoch=header.partition_leader_epoch,
        )
        path.write_bytes(data + batch)
        count += 1
    assert count
    return count


@pytest.mark.parametrize(
    "number",
    [0, pytest.param(1, marks=pytest.mark.long), pytest.param(-1, marks=pytest.mark.long)],
)
def test_a_copy_that_a_later_kafka_finished_is_a_hole_and_deletes_nothing(
    number: int, take_over: TakeOver
) -> None:
    broker = take_over()
    make_unknown(broker, number)
    kept = Kept(broker)
    broker.start()
    hole = until(
        lambda: [each for each in reasons(broker) if "hole" in each], "health names the hole"
    )
    assert hole[0].startswith(f"tier: {TOPIC}-0: ")
    passes(broker)
    assert "skipped a record" in broker.log_text()
    assert served(broker, 1) == as_read(sent(1))
    assert broker.terminate() == 0
    kept.check()
    assert not deletions(broker)


def make_unknown(broker: BrokerProcess, number: int) -> None:
    """Give a version of its own to the record that finished the topic's copy `number`."""
    found = [
        (path, place, value)
        for path in broker.log_directory.glob("__remote_log_metadata-*/*.log")
        for place, value, event in finished_in(path.read_bytes())
        if event.topic_id_partition.partition == 0
    ]
    assert len(found) >= 3
    path, place, value = found[number]
    data = bytearray(path.read_bytes())
    header = next(h for at, h in iter_batches(data) if at == place)
    assert value.startswith(b"\x01\x01\x00")
    data[data.index(value, place + HEADER_SIZE) + 2] = 1
    write_crc(data, place, header.size_bytes)
    path.write_bytes(data)


def finished_in(data: bytes) -> Iterator[tuple[int, bytes, SegmentUpdated]]:
    """Records that finish a copy: where their batch begins, their bytes, what they say."""
    for position, _ in iter_batches(data):
        for record in iter_records(data, position):
            event = records.decode(record.value)
            if isinstance(event, SegmentUpdated):
                assert event.update.state is SegmentState.COPY_SEGMENT_FINISHED
                assert record.value is not None
                yield position, record.value, event


@pytest.mark.long(seconds=40)
def test_a_topic_changed_to_compact_is_unhealthy_until_the_policy_is_reset(
    by_kafka: MadeByKafka, take_over: TakeOver
) -> None:
    broker = take_over()
    peer = KafkaPeer(broker.directory, SMALL_INDEXES)
    peer.start()
    set_policy(peer, "compact")
    peer.stop()
    kept = Kept(broker)
    broker.start()
    reason = until(
        lambda: [each for each in reasons(broker) if "cleanup.policy=compact" in each],
        "health names the policy",
    )[0]
    assert "kafka-configs.sh --alter" in reason
    kept.check()
    set_policy(broker, "delete")
    until(lambda: reasons(broker) == [], "health is green")
    produce(broker, TOPIC, values(500, PER_PARTITION))
    until(lambda: broker.local_segments(TOPIC)[0] >= PER_PARTITION, "our segments are copied")
    kept.check()


def set_policy(broker: BrokerProcess | KafkaPeer, policy: str) -> None:
    kafka_tool(
        "configs", "--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "topics",
        "--entity-name", "__remote_log_metadata", "--add-config", f"cleanup.policy={policy}",
    )  # fmt: skip


def deletions(broker: BrokerProcess) -> list[SegmentUpdated]:
    """Updates in the metadata topic that begin or end the deletion of a segment."""
    going = (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED)
    return [
        event
        for path in broker.log_directory.glob("__remote_log_metadata-*/*.log")
        for event in events_of(path.read_bytes())
        if isinstance(event, SegmentUpdated) and event.update.state in going
    ]


def events_of(data: bytes) -> Iterator[object]:
    for position, _ in iter_batches(data):
        for record in iter_records(data, position):
            try:
                yield records.decode(record.value)
            except records.UnreadableRecordError:
                continue
