"""What every part of the Raft core changes through."""

import itertools

import pytest

from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.messages import Node
from metadata_topic.raft.replica import Replica
from metadata_topic.raft.roles import TRANSITIONS, Role, check_transition
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet


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
