"""A reassignment takes the replica of this broker away, or gives it back."""

from pathlib import Path

import pytest

from broker.replica.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from broker.replica.hosting import ReplicaEvents
from kafka_protocol.errors import UnknownTopicId
from kafka_protocol.types import TopicPartition
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.image.model import DIRECTORY_UNASSIGNED
from metadata_topic.image.records import MetadataRecord, make
from tests.support.samples.metadata import apply, started
from tests.support.worlds.data_plane import NODE
from tests.support.worlds.one_broker import OneBroker
from tests.support.worlds.pools import HeldPool

OTHER = 9
TOPIC = b"t" * 16
REPLICA = ReplicaId(TOPIC, 0)


@pytest.fixture
def pool() -> HeldPool:
    """Holds what the disk does."""
    return HeldPool(is_holding=False)


@pytest.fixture
def broker(tmp_path: Path, pool: HeldPool) -> OneBroker:
    made = OneBroker(tmp_path, changes=pool)
    made.settings["file_delete_delay_ms"] = 1_000
    made.image = started(made.image, OTHER)
    return made


def replicas_are(*replicas: int) -> MetadataRecord:
    """The record of a reassignment: another broker leads."""
    return make(
        "PartitionChangeRecord",
        2,
        partition_id=0,
        topic_id=TOPIC,
        replicas=list(replicas),
        isr=[OTHER],
        leader=OTHER,
        directories=[
            DIRECTORY_UNASSIGNED if one == NODE else bytes([100 + one]) * 16 for one in replicas
        ],
    )


def found(broker: OneBroker) -> list[str]:
    """Names of partition directories, without the random part."""
    names = [path.name.split(".") for root in broker.paths for path in root.glob("t-*")]
    return sorted(
        "-".join([name, *(more.rsplit("-")[-1] for more in rest)]) for name, *rest in names
    )


async def test_a_replica_that_left_is_not_served_and_its_files_go_later(broker: OneBroker) -> None:
    broker.served("t")
    committed = broker.replicas.require("t", 0).committed(99)
    assert committed is not None
    broker.commit(replicas_are(OTHER))
    assert isinstance(committed.exception(), NotLeaderOrFollower)
    for look in (
        lambda: broker.replicas.require("t", 0),
        lambda: broker.replicas.require_id(TOPIC, 0),
    ):
        with pytest.raises(NotLeaderOrFollower, match="no replica here"):
            look()
    with pytest.raises(UnknownTopicOrPartition):
        broker.replicas.require("u", 0)
    with pytest.raises(UnknownTopicId):
        broker.replicas.require_id(b"u" * 16, 0)
    assert broker.replicas.leader(TopicPartition("t", 0)) == (OTHER, 1)
    assert found(broker) == ["t-0-delete"]
    broker.ports.scheduler.advance(1_001)
    assert found(broker) == []


def test_all_hear_that_it_left_before_its_files_change_their_name(
    broker: OneBroker, pool: HeldPool
) -> None:
    """The tier is told so, and fetchers; nobody hears that the topic is gone."""
    broker.served("t")
    told: list[ReplicaEvents] = []
    broker.replicas.listeners.append(told.append)
    pool.is_holding = True
    broker.commit(replicas_are(OTHER))
    assert found(broker) == ["t-0"]
    (events,) = told
    assert [(one.topic, one.partition) for one in events.gone] == [("t", 0)]
    assert (events.topics_deleted, events.led, events.followed) == ((), (), ())
    pool.release()
    assert found(broker) == ["t-0-delete"]


def test_nothing_goes_by_an_image_that_lacks_the_change(broker: OneBroker) -> None:
    broker.served("t")
    broker.commit(
        make("PartitionChangeRecord", 2, partition_id=0, topic_id=TOPIC, removing_replicas=[NODE])
    )
    assert found(broker) == ["t-0"]
    broker.append("t")


def test_a_returning_replica_begins_empty_and_is_noted_before_it_serves(
    broker: OneBroker,
) -> None:
    broker.served("t")
    broker.commit(replicas_are(OTHER))
    broker.commit(replicas_are(OTHER, NODE))
    assert found(broker) == ["t-0", "t-0-delete"]
    with pytest.raises(NotLeaderOrFollower, match="is being made"):
        broker.replicas.require("t", 0)
    assert REPLICA in broker.asked
    broker.commit_assignments()
    partition = broker.replicas.require("t", 0)
    assert (partition.is_leader, partition.leader_id) == (False, OTHER)
    assert partition.log.log_end_offset == 0


def test_a_replica_that_is_back_in_the_same_image_continues_with_its_log(broker: OneBroker) -> None:
    """The broker lagged, and reads both changes at once."""
    broker.served("t")
    broker.commit(replicas_are(OTHER), replicas_are(OTHER, NODE))
    assert not broker.replicas.require("t", 0).is_leader
    assert REPLICA in broker.asked
    broker.commit_assignments()
    partition = broker.replicas.require("t", 0)
    assert (partition.leader_id, partition.log.log_end_offset) == (OTHER, 3)
    assert found(broker) == ["t-0"]


def test_a_replica_that_left_while_the_broker_was_down_is_put_aside(broker: OneBroker) -> None:
    broker.served("t")
    broker.logs.close()
    broker.image = apply(broker.image, [replicas_are(OTHER)])
    broker.start()
    assert found(broker) == ["t-0-stray"]
    broker.ports.scheduler.advance(10_000)
    broker.commit(replicas_are(OTHER, NODE))
    broker.commit_assignments()
    assert broker.replicas.require("t", 0).log.log_end_offset == 0
    assert found(broker) == ["t-0", "t-0-stray"]
