"""Partitions come, go and change beside the loop: what is true while the disk is slow."""

import asyncio
import gc
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replica import hosting
from broker.replica.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from broker.replica.hosting import ChangeQueue, ReplicaEvents
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.files.offset_checkpoint import RECOVERY_POINTS
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.file_names import EPOCH_CHECKPOINT
from metadata_topic.image.image import ResourceType
from metadata_topic.image.records import make
from runtime.disk import Disk
from tests.support.worlds.data_plane import World
from tests.support.worlds.one_broker import OneBroker
from tests.support.worlds.pools import HeldPool, turns


@pytest.fixture
def pool() -> HeldPool:
    """Holds the batches; what they hand on is done at once."""
    return HeldPool(is_holding=False)


@pytest.fixture
def broker(tmp_path: Path, pool: HeldPool) -> OneBroker:
    return OneBroker(tmp_path, changes=pool)


def _delete(broker: OneBroker, topic_id: bytes) -> None:
    broker.commit(make("RemoveTopicRecord", topic_id=topic_id))


def _raise_epoch(broker: OneBroker, topic_id: bytes) -> None:
    broker.change_leader_epoch(topic_id, 0)


def _led(broker: OneBroker) -> list[tuple[str, int]]:
    told: list[tuple[str, int]] = []

    def hear(events: ReplicaEvents) -> None:
        told.extend((one.topic, one.leader_epoch) for one in events.led)

    broker.replicas.listeners.append(hear)
    return told


def test_a_deleted_name_is_not_found_while_its_files_wait(
    broker: OneBroker, pool: HeldPool
) -> None:
    topic_id = broker.create("t")
    broker.commit_assignments()
    pool.is_holding = True
    _delete(broker, topic_id)
    assert (broker.paths[broker.where("t")] / "t-0").is_dir()
    with pytest.raises(UnknownTopicOrPartition):
        broker.replicas.require("t", 0)
    assert (pool.held, broker.replicas.hosting.backlog) == (1, 1)
    pool.release()
    assert broker.replicas.hosting.backlog == 0
    assert not any((path / "t-0").exists() for path in broker.paths)


async def test_a_topic_of_the_same_name_never_meets_the_log_of_the_one_before(
    broker: OneBroker, pool: HeldPool
) -> None:
    broker.served("t")
    pool.is_holding = True
    broker.create("busy")  # so that the next two come into one batch
    _delete(broker, b"t" * 16)
    again = broker.create("t", id=b"2" * 16)
    settled = broker.replicas.hosting.settled([b"t" * 16])
    assert settled is not None
    with pytest.raises(NotLeaderOrFollower, match="is being made"):
        broker.replicas.require_id(again, 0)
    pool.release(2)  # that one, and the old files
    assert not any((path / "t-0").exists() for path in broker.paths)
    pool.release(1)  # the new ones
    assert settled.done()
    with pytest.raises(NotLeaderOrFollower, match="is being made"):
        broker.replicas.require("t", 0)
    broker.commit_assignments()
    pool.release()
    log = broker.replicas.require_id(again, 0).log
    assert (log.topic_id, log.log_end_offset) == (again, 0)


def _switch_tiering_on(broker: OneBroker) -> None:
    """A tiered log writes its chain before the role is taken."""
    switch = {"resource_type": int(ResourceType.TOPIC), "resource_name": "t"}
    broker.commit(make("ConfigRecord", name="remote.storage.enable", value="true", **switch))


def test_nobody_appends_between_the_chain_and_the_role(broker: OneBroker, pool: HeldPool) -> None:
    broker.served("t")
    _switch_tiering_on(broker)
    partition = broker.replicas.require("t", 0)
    told, before = _led(broker), partition.leader_epoch
    pool.is_holding = True
    _raise_epoch(broker, b"t" * 16)
    with pytest.raises(NotLeaderOrFollower):
        broker.append("t")
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader(-1)
    assert told == []
    pool.release()
    broker.append("t")
    assert told == [("t", before + 1)]
    assert partition.leader_epoch == before + 1
    partition.log.flush()
    chain = epoch_checkpoint.parse((partition.log.directory / EPOCH_CHECKPOINT).read_bytes())
    assert [tuple(entry) for entry in chain] == [(before, 0), (before + 1, 3)]


def test_only_what_was_said_last_is_done(broker: OneBroker, pool: HeldPool) -> None:
    broker.served("t")
    _switch_tiering_on(broker)
    told = _led(broker)
    pool.is_holding = True
    for _ in range(3):
        _raise_epoch(broker, b"t" * 16)
    pool.release()
    assert told == [("t", 3)]
    chain = broker.replicas.require("t", 0).log.epochs.entries()
    assert [entry.epoch for entry in chain] == [0, 3]


def test_a_topic_deleted_while_it_gets_a_new_epoch_is_not_served_again(
    broker: OneBroker, pool: HeldPool
) -> None:
    broker.served("t")
    _switch_tiering_on(broker)
    told = _led(broker)
    pool.is_holding = True
    _raise_epoch(broker, b"t" * 16)
    _delete(broker, b"t" * 16)
    pool.release()
    assert told == []
    assert broker.replicas.partitions == {}
    assert not any((path / "t-0").exists() for path in broker.paths)


def test_a_log_of_another_topic_of_that_name_is_not_served(broker: OneBroker) -> None:
    broker.logs.create("t", 0, b"o" * 16)
    broker.create("t")
    with pytest.raises(KafkaStorageError):
        broker.replicas.require("t", 0)
    assert "of a removed topic" in broker.replicas.offline[TopicPartition("t", 0)]


def test_many_partitions_cost_few_syncs_of_directories_and_checkpoints(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: Counter[Path] = Counter()
    written: Counter[str] = Counter()
    fsync_path, atomic_write = broker.disk.fsync_path, broker.disk.atomic_write

    def note_fsync(path: Path) -> None:
        synced[path] += 1
        fsync_path(path)

    def note_write(path: Path, data: bytes, *, durable: bool = True) -> None:
        if path.parent in broker.paths:
            written[path.name] += 1
        atomic_write(path, data, durable=durable)

    monkeypatch.setattr(broker.disk, "fsync_path", note_fsync)
    monkeypatch.setattr(broker.disk, "atomic_write", note_write)
    monkeypatch.setattr(hosting, "BATCH", 100)
    monkeypatch.setattr(hosting, "SLICE", 7)
    topic_id = broker.create("t", 200)
    broker.commit_assignments()
    assert broker.ends("t", 200) == [0] * 200
    assert all(synced[path] == 2 for path in broker.paths), "one for each batch"
    synced.clear()
    written.clear()
    _delete(broker, topic_id)
    assert broker.replicas.partitions == {}
    assert not any((path / f"t-{index}").exists() for path in broker.paths for index in range(200))
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        assert written[name] == 2 * len(broker.paths), "one for each batch and directory"


def test_a_batch_that_fails_for_an_unknown_reason_holds_up_no_other(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = broker.logs.plan_creation
    monkeypatch.setattr(broker.logs, "plan_creation", lambda wanted: 1 // 0)
    broker.create("t")
    monkeypatch.setattr(broker.logs, "plan_creation", plan)
    broker.create("u")
    broker.commit_assignments()
    assert broker.ends("u", 1) == [0]
    assert "partitions were not made or taken away" in caplog.text
    assert broker.replicas.hosting.settled([b"t" * 16]) is None
    with pytest.raises(KafkaStorageError, match="it could not be made"):
        broker.replicas.require("t", 0)


def test_a_directory_that_fails_under_a_batch_takes_only_its_own_with_it(
    broker: OneBroker, pool: HeldPool
) -> None:
    broker.served("old", 2)
    places = {index: broker.where("old", index) for index in range(2)}
    assert set(places.values()) == {0, 1}
    pool.is_holding = True
    broker.create("t", 4)
    broker.disk.fail({"fsync", "make_dirs"}, path_part=str(broker.paths[0]))
    pool.release()
    broker.disk.heal()
    broker.commit_assignments()
    pool.release()
    assert all((broker.paths[1] / f"t-{index}").is_dir() for index in range(4))
    assert broker.ends("t", 4) == [0] * 4
    for index, place in places.items():
        if place == 0:
            with pytest.raises(KafkaStorageError):
                broker.replicas.require("old", index)
        else:
            assert broker.replicas.require("old", index).log.log_end_offset == 3


async def test_a_stop_makes_nothing_more_but_takes_away_what_is_gone(
    broker: OneBroker, pool: HeldPool
) -> None:
    broker.served("old")
    pool.is_holding = True
    broker.create("begun")
    _delete(broker, (b"old" * 16)[:16])
    broker.create("never")
    stopping = asyncio.ensure_future(broker.replicas.stop())
    await turns(1)
    pool.release()
    await stopping
    names = {name for path in broker.paths for name in (one.name for one in path.iterdir())}
    assert not {"old-0", "never-0"} & names
    assert broker.replicas.partitions == {}
    broker.start()
    assert broker.logs.get(TopicPartition("old", 0)) is None


def test_who_leads_no_more_takes_nothing_more_while_the_disk_is_slow(
    broker: OneBroker, pool: HeldPool
) -> None:
    broker.served("t")
    pool.is_holding = True
    broker.create("busy")
    broker.commit(make("PartitionChangeRecord", 0, partition_id=0, topic_id=b"t" * 16, leader=-1))
    with pytest.raises(NotLeaderOrFollower):
        broker.append("t")
    pool.release()
    assert not broker.replicas.require("t", 0).is_leader


def test_deleted_partitions_are_freed_without_the_garbage_collector(broker: OneBroker) -> None:
    broker.served("t", 5)
    gc.collect()
    gc.disable()
    try:
        _delete(broker, b"t" * 16)
        assert broker.logs.all() == []
        assert gc.collect() == 0  # else they stayed for ever: what lives long is frozen
    finally:
        gc.enable()


@dataclass(frozen=True)
class Said:
    topic_partition: TopicPartition
    number: int


def queue_of(*topics: tuple[str, int]) -> ChangeQueue[Said]:
    queue: ChangeQueue[Said] = ChangeQueue()
    for name, count in topics:
        for number in range(count):
            queue.put(Said(TopicPartition(name, number), number))
    return queue


def names(taken: list[Said]) -> list[str]:
    return [one.topic_partition.topic for one in taken]


def test_a_topic_that_came_last_does_not_wait_for_a_thousand_partitions() -> None:
    queue = queue_of(("large", 1_000), ("small", 1))
    assert "small" in names(queue.take(250))


def test_a_topic_that_came_last_does_not_wait_for_a_thousand_topics() -> None:
    queue = queue_of(*((f"t-{number}", 1) for number in range(1_000)), ("small", 1))
    assert "small" in names(queue.take(250))


def test_the_first_topic_continues_however_many_come_after_it() -> None:
    queue = queue_of(("first", 100))
    taken: list[Said] = []
    for number in range(20):
        for late in range(10):
            queue.put(Said(TopicPartition(f"late-{number}-{late}", 0), 0))
        taken += queue.take(10)
    assert names(taken).count("first") == 100


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=60),
    st.lists(st.integers(1, 7), min_size=1, max_size=60),
)
def test_none_is_lost_and_each_topic_keeps_its_order(
    said: list[tuple[str, int]], sizes: list[int]
) -> None:
    queue: ChangeQueue[Said] = ChangeQueue()
    given_in, taken_out = defaultdict(list), defaultdict(list)
    for number, (name, partition) in enumerate(said):
        change = Said(TopicPartition(name, partition), number)
        queue.put(change)
        given_in[name].append(change)
        if number % 3 == 0:
            for one in queue.take(sizes[number % len(sizes)]):
                taken_out[one.topic_partition.topic].append(one)
    size = sizes[0]
    while queue:
        before = len(queue)
        batch = queue.take(size)
        assert len(batch) == min(size, before)
        assert len(queue) == before - len(batch)
        for one in batch:
            taken_out[one.topic_partition.topic].append(one)
    assert taken_out == given_in


class CountingDisk(Disk):
    """Counts how often the recovery points are replaced."""

    written = 0

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        self.written += target.name == RECOVERY_POINTS
        super().rename(source, target, durable=durable)


def test_topics_deleted_together_write_the_checkpoints_once(tmp_path: Path) -> None:
    disk = CountingDisk()
    world = World(tmp_path, disk=disk)
    for number in range(5):
        world.add_topic(f"t{number}", 2)
    disk.written = 0
    world.topics = {"t0": world.topics["t0"]}
    world.apply()
    assert disk.written == 1
    assert {tp.topic for tp in world.replicas.partitions} == {"t0"}
    assert {log.topic_partition.topic for log in world.logs.all()} == {"t0"}
