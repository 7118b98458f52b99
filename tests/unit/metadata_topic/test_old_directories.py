"""Directories of voters that were put back from an older copy: what the others know is not lost."""

import shutil
from pathlib import Path

from metadata_topic.quorum.driver.driver import RaftFailureError
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum


def put_back(node: ReplicaNode, copy: Path) -> None:
    shutil.rmtree(node.directory)
    shutil.copytree(copy, node.directory)


def test_a_restarted_voter_does_not_cut_its_log_below_its_own_snapshot(tmp_path: Path) -> None:
    """What is in a snapshot was committed, although the high watermark is unknown after a start."""
    quorum = ReplicaQuorum(tmp_path / "nodes", [1, 2, 3])
    quorum.start()
    leader = quorum.elect_active()
    quorum.create(leader, "everywhere")
    quorum.advance(1_000)
    voter, late = (node for node in quorum.replicas if node is not leader)
    late.kill()
    copy = tmp_path / "copy"
    shutil.copytree(leader.directory, copy)
    for number in range(5):
        quorum.create(leader, f"acknowledged-{number}")
    quorum.advance(1_000)
    snapshot_id = quorum.snapshot(voter)
    assert snapshot_id.end_offset > 0
    before = voter.names
    leader.kill()
    voter.kill()
    put_back(leader, copy)
    leader.start()
    late.start()
    successor = quorum.elect_active()
    for number in range(20):
        quorum.create(successor, f"later-{number}")
    voter.start()
    quorum.advance(10_000)
    assert before <= voter.names, "a mixture of two histories"
    assert isinstance(voter.failures[0], RaftFailureError), "it continued"
    assert f"below {snapshot_id.end_offset}" in str(voter.failures[0])
