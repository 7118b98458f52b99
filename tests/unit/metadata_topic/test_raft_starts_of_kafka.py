"""Starts by quorum-state: our core becomes what Kafka's controller became.

Recorded by `tests.support.raft_answers.record_starts`.
"""

import json
from pathlib import Path

import pytest

from metadata_topic.quorum.driver.quorum_state_file import (
    QUORUM_STATE,
    QuorumStateError,
    QuorumStateFile,
)
from metadata_topic.quorum.start.quorum_start import (
    FoundQuorum,
    MissingQuorumStateError,
    QuorumSettings,
    QuorumStart,
    plan_quorum_start,
)
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.events import ElectionState, Started
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey
from runtime.disk import Disk
from tests.support.raft_answers.comparison import FOLDER
from tests.support.raft_answers.directories import write_quorum_state
from tests.support.raft_answers.facts import ASKED, directory_of
from tests.support.raft_answers.roles import (
    HOUR_MS,
    NODES,
    SNAPSHOT_BYTES,
    DrivenCore,
    Row,
    election_of,
    voters_of,
)

STARTS = [json.loads(line) for line in (FOLDER / "starts.jsonl").read_text().splitlines()]
MISSING = {"missing", "missing, with snapshots"}
"""DIFFERS: Kafka continues and may vote twice; ours does not start."""
ME = ReplicaKey(ASKED, directory_of(ASKED))


def election_on_disk(row: Row, logs: Path) -> ElectionState | None:
    """Write the recorded quorum-state and read it as a start does."""
    directory = logs / "__cluster_metadata-0"
    directory.mkdir()
    if isinstance(row["state"], str):
        (directory / QUORUM_STATE).write_text(row["state"])
    elif row["state"] is not None:
        write_quorum_state(
            logs, row["state"], is_dynamic=not row["voters"], voters=row["voters"] or (1, 2, 3)
        )
    return QuorumStateFile(directory, Disk()).find()


def plan(row: Row, logs: Path) -> QuorumStart:
    log, voters = row["log"], row["voters"]
    facts = QuorumFacts() if voters else QuorumFacts(1, voters_of({"world": "dynamic"}))
    return plan_quorum_start(
        ME,
        QuorumSettings(is_controller=True, static_voters=tuple(NODES[one] for one in voters)),
        FoundQuorum(
            directory=str(logs),
            election=election_on_disk(row, logs),
            history=((0, facts),),
            end_offset=log["end"],
            newest_snapshot=SnapshotId(*log["snapshots"][-1]) if log["snapshots"] else None,
        ),
    )


def started(row: Row, start: QuorumStart) -> DrivenCore:
    log = row["log"]
    config = RaftConfig(
        election_timeout_ms=HOUR_MS,
        fetch_timeout_ms=HOUR_MS,
        static_nodes=start.static_nodes,
        bootstrap=start.bootstrap,
    )
    driven = DrivenCore(ME, config)
    driven.step(
        Started(
            election=start.election,
            start_offset=log["start"],
            end_offset=log["end"],
            epochs=tuple((epoch, first) for epoch, first in log["epochs"]),
            snapshots=tuple(
                SnapshotFile(SnapshotId(*one), SNAPSHOT_BYTES) for one in log["snapshots"]
            ),
            history=start.history,
            random=0.5,
        )
    )
    return driven


GOES_ON = [row for row in STARTS if row["died"] is None and row["start"] not in MISSING]


@pytest.mark.parametrize("row", GOES_ON, ids=[row["start"] for row in GOES_ON])
def test_a_start_becomes_what_kafkas_became(row: Row, tmp_path: Path) -> None:
    core = started(row, plan(row, tmp_path)).core
    role, epoch = row["roles"][-1]
    assert (core.role.value, core.epoch) == (role, epoch)
    theirs = election_of(row["after"])
    assert (core.election.epoch, core.election.leader_id) == (theirs.epoch, theirs.leader_id)
    if theirs.leader_id != ASKED:  # DIFFERS: who led keeps the vote for itself in our file
        assert core.election.voted == theirs.voted


REFUSED = [row for row in STARTS if row["died"] is not None or row["start"] in MISSING]


@pytest.mark.parametrize("row", REFUSED, ids=[row["start"] for row in REFUSED])
def test_what_does_not_start(row: Row, tmp_path: Path) -> None:
    error = MissingQuorumStateError if row["start"] in MISSING else QuorumStateError
    with pytest.raises(error):
        plan(row, tmp_path)


def test_the_recording_has_every_role_that_a_start_can_lead_to() -> None:
    first = {row["roles"][0][0] for row in STARTS if row["roles"]}
    assert first == {"unattached", "candidate", "resigned", "follower"}
    assert {row["start"] for row in STARTS} >= MISSING
