"""The manager makes, changes and drops partitions as the image says."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from broker.replica.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from broker.replica.hosting import ControllerRequests, ReplicaEvents
from broker.replica.manager import ReplicaManager
from kafka_protocol.errors import UnknownTopicId
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.manager.log_dir import LogDir
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.image.delta import MetadataDelta, TopicName
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.sorted_map import SortedMap
from runtime.disk import Disk
from tests.support.worlds.data_plane import NODE, World


def test_a_new_topic_is_hosted_and_led(world: World, tmp_path: Path) -> None:
    topic_id = world.add_topic("t", 2, leader_epoch=4)
    partition = world.replicas.require_id(topic_id, 1)
    assert partition is world.replicas.get(TopicPartition("t", 1))
    assert (partition.is_leader, partition.leader_epoch) == (True, 4)
    assert [tuple(e) for e in partition.log.epochs.entries()] == [(4, 0)]
    assert (tmp_path / "t-1").is_dir()


def test_a_partition_of_an_offline_directory_fails_until_it_is_deleted(
    world: World,
) -> None:
    world.add_topic("old")
    world.logs.delete(TopicPartition("old", 0))  # as if it lay in a directory that was not read
    world.logs.dirs.append(LogDir(Path("broken"), Disk()))
    world.logs.dirs[1].failure = OSError(5, "broken")
    replicas = ReplicaManager(
        logs=world.logs,
        node_id=NODE,
        config_for=world.config_for,
        ports=world.ports,
    )
    world.replicas = replicas
    world.apply()
    with pytest.raises(KafkaStorageError):
        replicas.require("old", 0)
    assert replicas.get(TopicPartition("old", 0)) is None
    del world.topics["old"]
    world.apply()
    with pytest.raises(UnknownTopicOrPartition):
        replicas.require("old", 0)


def test_a_log_of_a_later_leader_epoch_than_the_metadata_is_not_written_to(world: World) -> None:
    world.add_topic("t", leader_epoch=8)
    world.append("t", b"acknowledged")
    log = world.log("t")
    world.replicas = ReplicaManager(
        logs=world.logs,
        node_id=NODE,
        config_for=world.config_for,
        ports=world.ports,
    )
    world.change("t", leader=-1, leader_epoch=3)  # the metadata were put back from an older copy
    world.change("t", leader=NODE, leader_epoch=4)
    with pytest.raises(KafkaStorageError, match="leader epoch 8, and the metadata say 4"):
        world.replicas.require("t", 0)
    assert [tuple(entry) for entry in log.epochs.entries()] == [(8, 0)]
    world.change("t", leader_epoch=8)
    assert world.replicas.require("t", 0).log is log


class Epochs:
    """Takes questions for higher leader epochs."""

    def __init__(self) -> None:
        self.asked: list[tuple[ReplicaId, int, int]] = []
        self.in_vain = ""

    def ask(self, replica: ReplicaId, *, leader_epoch: int, used: int) -> str:
        self.asked.append((replica, leader_epoch, used))
        return self.in_vain


def test_a_log_of_a_later_leader_epoch_asks_for_a_higher_one_when_it_leads(world: World) -> None:
    topic_id = world.add_topic("t", leader_epoch=8)
    world.append("t", b"acknowledged")
    epochs = Epochs()
    world.replicas = ReplicaManager(
        logs=world.logs,
        node_id=NODE,
        config_for=world.config_for,
        ports=world.ports,
        requests=ControllerRequests(raise_epoch=epochs.ask),
    )
    world.change("t", leader=-1, leader_epoch=3)
    assert epochs.asked == [], "nobody leads yet"
    world.change("t", leader=NODE, leader_epoch=4)
    replica, tp = ReplicaId(topic_id, 0), TopicPartition("t", 0)
    assert epochs.asked == [(replica, 4, 8)]
    assert "asked for a higher one" in world.replicas.offline[tp]
    epochs.in_vain = "the controller refuses a higher one"
    world.replicas.epoch_refused(replica)
    assert f"{epochs.in_vain}. Remedy" in world.replicas.offline[tp]
    world.change("t", leader_epoch=9)
    assert world.replicas.offline == {}
    world.append("t", b"continues")
    assert [tuple(entry) for entry in world.log("t").epochs.entries()] == [(8, 0), (9, 1)]
    world.replicas.epoch_refused(replica)
    assert world.replicas.offline == {}, "it came too late to matter"


def test_a_partition_of_other_brokers_is_known(world: World) -> None:
    topic_id = world.add_topic("t")
    world.change("t", replicas=(2,), isr=(2,), leader=2, leader_epoch=5)
    with pytest.raises(NotLeaderOrFollower):
        world.replicas.require("t", 0)
    with pytest.raises(NotLeaderOrFollower):
        world.replicas.require_id(topic_id, 0)
    tp = TopicPartition("t", 0)
    assert world.replicas.leader(tp) == (2, 5)
    del world.topics["t"]
    world.apply()
    assert world.replicas.leader(tp) is None


def test_unknown_names_and_ids_are_told_apart(world: World) -> None:
    topic_id = world.add_topic("t")
    with pytest.raises(UnknownTopicOrPartition):
        world.replicas.require("t", 1)
    with pytest.raises(UnknownTopicOrPartition):
        world.replicas.require_id(topic_id, 1)
    with pytest.raises(UnknownTopicId):
        world.replicas.require_id(bytes(16), 0)
    assert world.replicas.by_id(bytes(16), 0) is None


def test_a_deleted_topic_is_dropped_and_its_name_free_at_once(world: World) -> None:
    old = world.add_topic("t")
    world.append("t", b"old")
    partition = world.replicas.require("t", 0)
    del world.topics["t"]
    world.apply()
    assert partition.deleted
    assert world.replicas.get(TopicPartition("t", 0)) is None
    new = world.add_topic("t")
    assert new != old
    assert world.replicas.by_id(old, 0) is None
    assert world.log("t").log_end_offset == 0


def test_a_topic_replaced_in_one_step_starts_empty(world: World) -> None:
    world.add_topic("t")
    world.append("t", b"old")
    world.add_topic("t")
    assert world.log("t").log_end_offset == 0


def test_partitions_of_others_are_not_hosted(world: World) -> None:
    world.add_topic("t", 2)
    world.change("t", 1, replicas=(2,), isr=(2,), leader=2)
    assert world.replicas.get(TopicPartition("t", 1)) is None
    assert world.replicas.get(TopicPartition("t", 0)) is not None


def test_a_new_epoch_is_in_the_chain_before_any_record(world: World) -> None:
    world.add_topic("t", leader_epoch=1)
    world.append("t", b"0")
    world.change("t", leader_epoch=3)
    chain = [tuple(e) for e in world.log("t").epochs.entries()]
    assert chain == [(1, 0), (3, 1)]


def test_listeners_hear_by_name_what_happens_and_of_nothing_else(world: World) -> None:
    heard: list[ReplicaEvents] = []
    world.replicas.listeners.append(heard.append)
    topic_id = world.add_topic("t")
    partition = world.replicas.require("t", 0)
    world.apply()
    world.change("t", leader=2)
    world.change("t", leader=NODE, leader_epoch=9)
    del world.topics["t"]
    world.apply()
    assert heard == [
        ReplicaEvents(led=(partition,)),
        ReplicaEvents(followed=(partition,)),
        ReplicaEvents(led=(partition,)),
        ReplicaEvents(gone=(partition,), topics_deleted=(topic_id,)),
    ]


def test_changed_configs_reach_the_logs(world: World) -> None:
    world.add_topic("t")
    world.configs["t"] = replace(world.configs["t"], max_message_bytes=77)
    image = MetadataImage(
        topics_by_name=SortedMap.of(world.topics),
        topics_by_id=SortedMap.of({t.id: t for t in world.topics.values()}),
    )
    delta = MetadataDelta(image)
    delta.changed_configs.add((ResourceType.TOPIC, "t"))
    heard: list[ReplicaEvents] = []
    world.replicas.listeners.append(heard.append)
    world.replicas.apply(image, delta)
    assert world.log("t").config.max_message_bytes == 77
    assert heard == [ReplicaEvents(configured=(world.replicas.require("t", 0),))]
    world.replicas.apply(image, delta)
    assert len(heard) == 1


def test_the_counters_of_a_deleted_topic_are_forgotten(world: World) -> None:
    world.add_topic("t")
    world.append("t", b"x")
    assert any(s.labels.get("topic") == "t" for s in world.metrics.samples())
    del world.topics["t"]
    world.apply()
    assert not any(s.labels.get("topic") == "t" for s in world.metrics.samples())


def test_a_delta_is_enough_to_follow_the_image(world: World) -> None:
    """What the delta names is looked at, and nothing else."""
    world.add_topic("stays")
    world.add_topic("goes")

    def apply(delta: MetadataDelta) -> None:
        image = MetadataImage(
            topics_by_name=SortedMap.of(world.topics),
            topics_by_id=SortedMap.of({t.id: t for t in world.topics.values()}),
        )
        world.replicas.apply(image, delta)

    gone = world.topics.pop("goes")
    changed = world.topics["stays"]
    world.topics["stays"] = structs.replace(
        changed, partitions={0: structs.replace(changed.partitions[0], leader_epoch=9)}
    )
    delta = MetadataDelta(MetadataImage())
    delta.deleted_topics[gone.id] = TopicName("goes", gone.id)
    delta.changed_partitions[changed.id] = {0}
    apply(delta)
    assert world.replicas.get(TopicPartition("goes", 0)) is None
    assert world.replicas.require("stays", 0).leader_epoch == 9
