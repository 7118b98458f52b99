"""What every part of the Raft core changes through, and its voters."""

import itertools
from pathlib import Path

import pytest

from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.events import Proposed, SnapshotInstalled
from metadata_topic.raft.log_view import LogView, SnapshotFile
from metadata_topic.raft.messages import BatchFacts, EpochEnd, FetchRequest, Node, SnapshotId
from metadata_topic.raft.replica import Replica
from metadata_topic.raft.role_states import Prospective
from metadata_topic.raft.roles import TRANSITIONS, Role, check_transition
from metadata_topic.raft.voter_history import QuorumFacts, VoterHistory
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.worlds.scripted_core import ScriptedCore, key


def test_addresses_that_others_name_are_not_remembered_for_ever() -> None:
    replica = Replica(ReplicaKey(1), RaftConfig(retry_backoff_ms=20))
    for turn in range(1_000):
        replica.now_ms = turn * 10
        replica.back_off(Node(2, "somewhere", turn))
    assert len(replica._retry_at) <= 64
    newest = Node(2, "somewhere", 999)
    assert not replica.is_ready(newest), "those that still count are kept"
    replica.now_ms += 20
    assert replica.is_ready(newest)


def test_only_transitions_of_the_table_are_possible() -> None:
    for old, new in itertools.product(Role, Role):
        if new in TRANSITIONS[old]:
            check_transition(old, new)
        else:
            with pytest.raises(AssertionError, match="cannot become"):
                check_transition(old, new)


def test_voter_ids_are_distinct_and_rise() -> None:
    with pytest.raises(AssertionError):
        VoterSet((Voter(ReplicaKey(2)), Voter(ReplicaKey(1))))


def test_of_a_voters_listeners_the_one_of_our_name_is_asked() -> None:
    endpoints = (VoterEndpoint("INNER", "inner", 1), VoterEndpoint("OUTER", "outer", 2))
    voters = VoterSet((Voter(ReplicaKey(3), endpoints),))
    for name, found in (("OUTER", Node(3, "outer", 2)), ("ANOTHER", Node(3, "inner", 1))):
        replica = Replica(ReplicaKey(1), RaftConfig(listener_name=name))
        replica.history = VoterHistory([(0, QuorumFacts(1, voters))])
        assert replica.node_of(3) == found


def led_from_outside() -> ScriptedCore:
    """A leader that its newest record took out of the voters 1 and 3, both up to date before."""
    node = ScriptedCore()
    node.lead()
    end = node.core.log.end_offset
    for voter in (1, 3):
        node.ask(FetchRequest(key(voter), 1, end, 1, max_wait_ms=0), token=voter)
    left = VoterSet((Voter(ReplicaKey(1)), Voter(ReplicaKey(3))))
    batch = BatchFacts(end, end + 1, 1, 1, left)
    node.step(Proposed(1, (batch,), b"x"))
    return node


def test_a_leader_outside_the_voters_does_not_count_for_what_is_committed() -> None:
    node = led_from_outside()
    end = node.core.log.end_offset
    node.ask(FetchRequest(key(1), 1, end, 1, max_wait_ms=0))
    assert node.core.high_watermark == end - 1, "its own disk and one voter are no majority"
    node.ask(FetchRequest(key(3), 1, end, 1, max_wait_ms=0))
    assert node.core.high_watermark == end


def test_a_leader_outside_the_voters_needs_a_majority_that_fetches() -> None:
    node = led_from_outside()
    end = node.core.log.end_offset
    node.tick(node.now_ms + 2_900)
    node.ask(FetchRequest(key(1), 1, end, 1, max_wait_ms=0))
    node.tick(node.now_ms + 200)
    assert node.core.role is Role.RESIGNED


def test_a_snapshot_with_other_voters_begins_the_count_of_votes_anew() -> None:
    node = ScriptedCore()
    node.follow()
    node.tick(node.now_ms + 2_000)
    assert node.core.role is Role.PROSPECTIVE
    voters = VoterSet(tuple(Voter(ReplicaKey(one)) for one in (2, 4, 5, 6)))
    snapshot = SnapshotFile(SnapshotId(10, 1), 100)
    node.step(SnapshotInstalled(snapshot, QuorumFacts(1, voters, in_log=True)))
    state = node.core.replica.state
    assert isinstance(state, Prospective)
    assert state.tally.unanswered == (4, 5, 6)


def test_a_snapshot_below_the_log_start_does_not_extend_the_log() -> None:
    """It is there until a deletion comes to it; the log begins at the end of a later one."""
    old, new = SnapshotFile(SnapshotId(5, 1), 100), SnapshotFile(SnapshotId(10, 3), 100)
    log = LogView(10, 20, [(4, 12)], (old, new))
    assert log.oldest_snapshot == log.newest_snapshot == new
    assert log.end_of(3) == EpochEnd(3, 10)
    assert log.end_of(2) == EpochEnd(2, 10)


PAGE = Path(__file__).parents[3] / "docs" / "metadata-log.md"


def drawn() -> str:
    """The diagram in Mermaid's words; paste it when the table has changed."""
    lines = ["stateDiagram-v2", "    [*] --> unattached"]
    for old, news in TRANSITIONS.items():
        for new, why in news.items():
            text = why.replace(";", " /")  # a semicolon ends a statement of Mermaid
            lines.append(f"    {old.value} --> {new.value}: {text}")
    return "\n".join(lines)


def test_the_page_shows_the_table() -> None:
    assert f"```mermaid\n{drawn()}\n```" in PAGE.read_text()


def test_every_role_is_in_it_and_can_be_left() -> None:
    text = drawn()
    for role in Role:
        assert f"    {role.value} --> " in text
        assert f" --> {role.value}" in text
