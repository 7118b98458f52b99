import itertools

import pytest

from metadata_topic.raft.roles import TRANSITIONS, Role, check_transition
from metadata_topic.raft.sole_core import RaftCore
from metadata_topic.raft.sole_events import (
    AdvanceHighWatermark,
    AppendStartOfEpoch,
    Closing,
    ElectionState,
    Flushed,
    FlushLog,
    PersistElection,
    Started,
)
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet

ME = ReplicaKey(1, b"d" * 16)
ALONE = VoterSet((Voter(ME),))
THREE = VoterSet(tuple(Voter(ReplicaKey(n)) for n in (1, 2, 3)))


def core(voters: VoterSet = ALONE, *, voters_in_log: bool = True) -> RaftCore:
    return RaftCore(ME, voters, voters_in_log=voters_in_log)


def test_a_sole_voter_persists_its_vote_before_it_leads_and_opens_an_epoch() -> None:
    raft = core()
    effects = raft.handle(Started(ElectionState(), last_epoch=0, end_offset=0))
    assert effects == [
        PersistElection(ElectionState(1, None, ME)),
        PersistElection(ElectionState(1, 1, None)),
        AppendStartOfEpoch(1, ALONE, (1,), with_voters=False),
        FlushLog(),
    ]
    assert raft.role is Role.LEADER
    assert (raft.epoch, raft.leader_id) == (1, 1)


def test_voters_of_the_format_step_are_written_once() -> None:
    effects = core(voters_in_log=False).handle(Started(ElectionState(), 0, 0))
    assert AppendStartOfEpoch(1, ALONE, (1,), with_voters=True) in effects


@pytest.mark.parametrize(
    ("persisted", "last_epoch", "opened"),
    [(4, 4, 5), (5, 4, 6), (0, 4, 5), (3, 7, 8)],
    ids=["usual", "died before LeaderChange", "quorum-state lost", "quorum-state old"],
)
def test_the_new_epoch_is_above_all_that_disk_remembers(
    persisted: int, last_epoch: int, opened: int
) -> None:
    raft = core()
    raft.handle(Started(ElectionState(persisted, 1, None), last_epoch, 10))
    assert raft.epoch == opened


def test_nothing_is_committed_before_a_record_of_the_own_epoch_is_on_disk() -> None:
    raft = core()
    raft.handle(Started(ElectionState(1), 1, end_offset=10))
    assert raft.handle(Flushed(10)) == []
    assert raft.high_watermark == -1
    assert raft.handle(Flushed(11)) == [AdvanceHighWatermark(11)]


def test_the_high_watermark_never_falls() -> None:
    raft = core()
    raft.handle(Started(ElectionState(), 0, 0))
    raft.handle(Flushed(5))
    assert raft.handle(Flushed(5)) == []
    assert raft.handle(Flushed(3)) == []
    assert raft.high_watermark == 5


def test_one_of_three_does_not_elect_itself() -> None:
    raft = core(THREE)
    assert raft.handle(Started(ElectionState(7), 7, 10)) == []
    assert raft.role is Role.UNATTACHED
    assert raft.epoch == 7
    assert raft.handle(Flushed(10)) == []


def test_a_closing_leader_resigns_and_commits_nothing_more() -> None:
    raft = core()
    raft.handle(Started(ElectionState(), 0, 0))
    raft.handle(Closing())
    assert raft.role is Role.RESIGNED
    assert raft.handle(Flushed(10)) == []


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
    assert THREE.majority == 2
    assert ALONE.majority == 1
