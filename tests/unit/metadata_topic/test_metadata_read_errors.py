"""A disk that cannot be read ends a node at once, as one that cannot be written does."""

import errno
from dataclasses import replace
from pathlib import Path

from local_log.errors import KafkaStorageError
from metadata_topic.quorum.config import MetadataLogConfig
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum


def faulty(node: ReplicaNode) -> FaultyDisk:
    assert isinstance(node.disk, FaultyDisk)
    return node.disk


def a_leader_with_one_behind(
    root: Path, **config: int
) -> tuple[ReplicaQuorum, ReplicaNode, ReplicaNode]:
    quorum = ReplicaQuorum(root, [1, 2, 3])
    quorum.config = replace(MetadataLogConfig(), **config)
    for node in quorum.replicas:
        node.disk = FaultyDisk()
    quorum.start()
    leader = quorum.elect_active()
    behind = next(node for node in quorum.replicas if node is not leader)
    behind.kill()
    for name in ("a", "b"):
        quorum.create(leader, name)
    return quorum, leader, behind


def test_a_leader_that_cannot_read_its_log_ends_at_the_next_fetch(
    tmp_path: Path,
) -> None:
    quorum, leader, behind = a_leader_with_one_behind(tmp_path)
    faulty(leader).fail(["read_at"], path_part=".log", error=errno.EIO)
    end = leader.opened.log.end_offset
    behind.start()
    for _ in range(600):
        if not leader.failures:
            quorum.advance(1)
    assert leader.opened.log.end_offset == end, "no change was needed to find out"
    [failure] = leader.failures
    assert leader.replica.failure is failure
    assert isinstance(failure, KafkaStorageError)
    assert str(leader.directory) in str(failure)
    assert "Input/output error" in str(failure)
    leader.kill()
    assert quorum.elect_active() is not leader


def test_a_want_of_descriptors_at_a_read_ends_nobody(tmp_path: Path) -> None:
    quorum, leader, behind = a_leader_with_one_behind(tmp_path)
    disk = faulty(leader)
    disk.fail(["read_at"], path_part=".log", error=errno.EMFILE)
    behind.start()
    quorum.advance(600)
    assert leader.failures == []
    assert behind.names == set()
    disk.heal()
    quorum.advance(1_000)
    assert behind.names == {"a", "b"}


def test_a_log_that_fails_while_old_segments_are_deleted_ends_the_node(tmp_path: Path) -> None:
    """Nobody waits for the next change to find out."""
    quorum, leader, behind = a_leader_with_one_behind(
        tmp_path, segment_bytes=300, max_retention_bytes=1
    )
    quorum.snapshot(leader)
    quorum.create(leader, "c")
    faulty(leader).fail(["rename"], path_part=".deleted", error=errno.EIO)
    quorum.snapshot(leader)
    [failure] = leader.failures
    assert isinstance(failure, KafkaStorageError)
    leader.kill()
    behind.start()
    assert quorum.elect_active() is not leader
