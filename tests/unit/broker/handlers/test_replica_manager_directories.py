"""A new replica is served when the metadata hold its directory, and not begun again after that."""

import errno
from pathlib import Path

import pytest

from broker.replica.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from metadata_topic.controller.directories import (
    ReplicaId,
    forget_directory,
)
from metadata_topic.image.image import METADATA_VERSION, ResourceType
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply
from tests.support.worlds.data_plane import NODE
from tests.support.worlds.one_broker import DIRECTORIES, OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    return OneBroker(tmp_path)


# -- in the order of the rule


def test_a_new_replica_is_served_when_its_directory_is_committed(broker: OneBroker) -> None:
    topic_id = broker.create("t", 2)
    for index in range(2):
        with pytest.raises(NotLeaderOrFollower, match="is being made"):
            broker.replicas.require("t", index)
        assert (broker.paths[broker.where("t", index)] / f"t-{index}" / f"{0:020}.log").exists()
    assert broker.asked == {
        ReplicaId(topic_id, index): DIRECTORIES[broker.where("t", index)] for index in range(2)
    }
    broker.commit_assignments()
    assert broker.ends("t", 2) == [0, 0]
    assert broker.replicas.pending == {}
    assert broker.asked == {}  # once


def test_a_change_while_it_is_being_made_is_not_served_and_not_asked_twice(
    broker: OneBroker,
) -> None:
    topic_id = broker.create("t")
    broker.asked, first = {}, broker.asked
    broker.change_leader_epoch(topic_id, 0)
    assert broker.asked == {}
    assert broker.replicas.get(TopicPartition("t", 0)) is None
    broker.asked = first
    broker.commit_assignments()
    assert broker.replicas.require("t", 0).leader_epoch == 1


def test_two_topics_in_a_row_are_each_served_by_their_own_commit(broker: OneBroker) -> None:
    broker.create("t")
    first, broker.asked = broker.asked, {}
    broker.create("u")
    second, broker.asked = broker.asked, first
    broker.commit_assignments()
    assert broker.ends("t", 1) == [0]
    assert broker.replicas.get(TopicPartition("u", 0)) is None
    broker.asked = second
    broker.commit_assignments()
    assert broker.ends("u", 1) == [0]


async def test_who_creates_a_topic_waits_until_it_is_served(broker: OneBroker) -> None:
    first, second = broker.create("t"), broker.create("u")
    assert broker.replicas.hosting.settled([b"x" * 16]) is None
    both = broker.replicas.hosting.settled([first, second])
    one = broker.replicas.hosting.settled([first])
    assert both is not None
    assert one is not None
    asked = broker.asked
    broker.asked = {key: value for key, value in asked.items() if key.topic_id == first}
    broker.commit_assignments()
    assert (one.done(), both.done()) == (True, False)
    broker.asked = asked
    broker.commit_assignments()
    assert both.done()
    assert broker.replicas.hosting.settled([first, second]) is None


async def test_a_commit_that_fails_is_said_and_ends_the_waiting(broker: OneBroker) -> None:
    topic_id = broker.create("t")
    waiting = broker.replicas.hosting.settled([topic_id])
    assert waiting is not None
    broker.replicas.hosting.assignment_failed(broker.asked, KafkaError("no"))
    assert waiting.done()
    with pytest.raises(KafkaStorageError, match="could not be noted"):
        broker.replicas.require("t", 0)
    # Its next change tries again; the log is the same, and still empty.
    broker.asked = {}
    broker.change_leader_epoch(topic_id, 0)
    broker.commit_assignments()
    assert broker.ends("t", 1) == [0]
    assert broker.replicas.offline == {}


async def test_a_topic_that_is_deleted_while_it_is_being_made_leaves_nothing(
    broker: OneBroker,
) -> None:
    topic_id = broker.create("t")
    late, broker.asked = broker.asked, {}
    waiting = broker.replicas.hosting.settled([topic_id])
    assert waiting is not None
    broker.commit(make("RemoveTopicRecord", topic_id=topic_id))
    assert waiting.done()
    assert broker.replicas.pending == {}
    with pytest.raises(UnknownTopicOrPartition):
        broker.replicas.require("t", 0)
    again = broker.create("t", id=b"2" * 16)
    assert {replica.topic_id for replica in broker.asked} == {again}
    broker.replicas.hosting.assignment_failed(late, KafkaError("late"))  # is of the old one
    broker.commit_assignments()
    assert broker.replicas.require_id(again, 0).log.log_end_offset == 0


def test_a_start_between_files_and_commit_serves_the_same_files(broker: OneBroker) -> None:
    broker.create("t", 4)
    places = [broker.where("t", index) for index in range(4)]
    broker.start()
    assert broker.ends("t", 4) == [0] * 4
    assert [broker.where("t", index) for index in range(4)] == places


def test_an_old_metadata_version_serves_at_once(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, version=16)
    broker.create("t", 2)
    assert broker.asked == {}
    assert broker.ends("t", 2) == [0, 0]


# -- lost directories


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_directory_never_begins_its_partitions_anew(broker: OneBroker, lost: int) -> None:
    broker.served("t", 4)
    mine = [index for index in range(4) if broker.where("t", index) == lost]
    assert len(mine) == 2
    for _ in range(2):
        broker.start(missing=[lost])
        broker.served("new-" + str(broker.life), 2)
        for index in range(4):
            if index in mine:
                with pytest.raises(KafkaStorageError, match="is missing or does not work"):
                    broker.append("t", index)
            else:
                broker.append("t", index)
    broker.start()
    assert broker.ends("t", 4) == [3 if index in mine else 5 for index in range(4)]


def test_files_that_are_gone_from_a_working_directory_are_not_made_again(
    broker: OneBroker, tmp_path: Path
) -> None:
    broker.served("t", 2)
    directory = broker.paths[broker.where("t", 1)] / "t-1"
    directory.rename(tmp_path / "kept")
    broker.start()
    with pytest.raises(KafkaStorageError, match="put its files back"):
        broker.append("t", 1)
    assert not directory.exists()
    (tmp_path / "kept").rename(directory)
    broker.start()
    assert broker.ends("t", 2) == [3, 3]


def test_a_forgotten_directory_lets_its_partitions_begin_anew(broker: OneBroker) -> None:
    broker.served("t", 2)
    lost = broker.where("t", 0)
    working = [DIRECTORIES[1 - lost]]
    result = forget_directory(
        broker.image, NODE, DIRECTORIES[lost], working=working, begins_last_copies=True
    )
    broker.image = apply(broker.image, result.records)
    broker.start(missing=[lost])
    broker.commit_assignments()
    assert broker.ends("t", 2) == [0, 3]


def test_a_role_change_on_a_failing_directory_is_no_trouble_of_the_others(
    broker: OneBroker,
) -> None:
    broker.served("t", 6)
    topic_id = broker.image.topics_by_name["t"].id
    switch = {"resource_type": int(ResourceType.TOPIC), "resource_name": "t"}
    broker.commit(make("ConfigRecord", name="remote.storage.enable", value="true", **switch))
    broker.disk.fail(["open_append", "write_at", "append"], path_part="/a/t-", error=errno.ENOSPC)
    broker.change_leader_epoch(topic_id, *range(6))
    broker.disk.heal()
    for index in range(6):
        if broker.where("t", index) == 0:
            with pytest.raises(KafkaStorageError):
                broker.append("t", index)
        else:
            broker.append("t", index)
            assert broker.replicas.require("t", index).leader_epoch == 1
    broker.start()
    assert all(end in (3, 4) for end in broker.ends("t", 6))


def test_a_disk_that_fills_up_while_topics_are_made_ends_nothing(broker: OneBroker) -> None:
    broker.disk.fail(["open_append"], path_part="/a/", error=errno.ENOSPC, after=1)
    broker.create("t", 4)
    assert set(broker.asked.values()) == {DIRECTORIES[1]}
    broker.commit_assignments()
    assert broker.ends("t", 4) == [0] * 4


def test_what_is_not_served_is_an_offline_replica_for_who_describes_it(
    broker: OneBroker, tmp_path: Path
) -> None:
    broker.served("t", 4)
    broker.logs.fail(broker.logs.dirs[0], OSError(errno.EIO, "away"))
    failed = [[NODE] if broker.where("t", index) == 0 else [] for index in range(4)]
    assert sorted(failed) == [[], [], [NODE], [NODE]]
    assert broker.offline_replicas("t") == failed
    gone = failed.index([])
    (broker.paths[1] / f"t-{gone}").rename(tmp_path / "gone")
    broker.start()
    assert broker.offline_replicas("t") == [[NODE] if n == gone else [] for n in range(4)]


# -- replicas of before the rule


def before_the_rule(tmp_path: Path, partitions: int = 2) -> OneBroker:
    """Served without a directory in the metadata, as by Kafka."""
    broker = OneBroker(tmp_path, keeps=False, version=16)
    broker.create("t", partitions)
    for index in range(partitions):
        broker.append("t", index)
    broker.keeps = True
    level = make("FeatureLevelRecord", name=METADATA_VERSION, feature_level=30)
    broker.image = apply(broker.image, [level])
    return broker


def test_what_is_on_disk_is_assigned_by_the_first_start_after_the_upgrade(tmp_path: Path) -> None:
    broker = before_the_rule(tmp_path)
    broker.start()
    assert broker.ends("t", 2) == [1, 1]
    lost = broker.where("t", 0)
    broker.start(missing=[lost])
    with pytest.raises(KafkaStorageError):
        broker.append("t", 0)


def test_after_the_upgrade_a_missing_directory_keeps_replicas_offline(
    tmp_path: Path,
) -> None:
    broker = before_the_rule(tmp_path)
    lost = broker.where("t", 0)
    for _ in range(2):
        broker.start(missing=[lost])
        with pytest.raises(KafkaStorageError, match="directories forget lost"):
            broker.append("t", 0)
        broker.append("t", 1)
    broker.start()
    assert broker.ends("t", 2) == [1, 3]


def test_a_replica_that_failed_at_the_upgrade_is_not_begun_by_later_starts(
    tmp_path: Path,
) -> None:
    broker = before_the_rule(tmp_path)
    lost = broker.where("t", 0)
    broker.start(failing=[lost])
    for missing in ([lost], [lost], []):
        broker.start(missing=missing)
        broker.commit_assignments()
        if missing:
            with pytest.raises(KafkaStorageError):
                broker.append("t", 0)
    assert broker.ends("t", 2) == [1, 1]


def test_a_directory_that_fails_before_a_new_replica_is_noted_keeps_it(broker: OneBroker) -> None:
    """Its files are there, and the commit is under way: it is not begun in another directory."""
    broker.create("t")
    home = broker.where("t")
    broker.logs.fail(broker.logs.dirs[home], OSError(errno.EIO, "away"))
    broker.create("u")  # metadata continue changing
    broker.commit_assignments()
    for missing in ([home], []):
        with pytest.raises(KafkaStorageError):
            broker.append("t")
        assert broker.where("t") == home
        broker.start(missing=missing)
        broker.commit_assignments()
    assert broker.ends("t", 1) == [0]


@pytest.mark.parametrize("refused", ["unreadable", "of another topic", "twice"])
def test_what_is_refused_at_the_upgrade_is_not_begun_by_a_later_start(
    tmp_path: Path, refused: str
) -> None:
    broker = before_the_rule(tmp_path)
    home = broker.paths[broker.where("t", 0)]
    other = broker.paths[1 - broker.where("t", 0)]
    metadata = home / "t-0" / "partition.metadata"
    kept = metadata.read_bytes()
    if refused == "unreadable":
        metadata.unlink()
        metadata.mkdir()
    elif refused == "of another topic":
        metadata.write_bytes(kept.replace(b"topic_id: dH", b"topic_id: xx"))
        (home / "t-0" / "tidemark-checksums").unlink()
    else:
        (other / "t-0").mkdir()
        for file in (home / "t-0").iterdir():
            (other / "t-0" / file.name).write_bytes(file.read_bytes())
    for missing in ([], [broker.paths.index(home)], []):
        broker.start(missing=missing)
        broker.commit_assignments()
        try:
            end = broker.replicas.require("t", 0).log.log_end_offset
        except KafkaStorageError:
            continue
        assert end == 1  # of a whole copy
    if refused == "unreadable":
        metadata.rmdir()
        metadata.write_bytes(kept)
    elif refused == "of another topic":
        metadata.write_bytes(kept)
    broker.start()
    assert refused == "twice" or broker.ends("t", 1) == [1]
