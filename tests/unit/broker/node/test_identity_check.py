"""When somebody else is this controller already, and when it only was."""

from dataclasses import replace

from broker.node.identity_check import (
    Doubts,
    Identity,
    LeaderView,
    SeenReplica,
    other_cluster,
    other_voters,
)
from kafka_protocol.types import ZERO_UUID
from metadata_topic.raft.voters import ReplicaKey

MINE, THEIRS = b"m" * 16, b"t" * 16
RIVAL = ReplicaKey(2, THEIRS)
ME = Identity(ReplicaKey(2, MINE), "mine", "/d/meta.properties")


def view(*seen: SeenReplica, now_ms: int, leader_id: int = 1, epoch: int = 5) -> LeaderView:
    leader = SeenReplica(ReplicaKey(1, b"1" * 16), is_voter=True, last_fetch_ms=now_ms)
    return LeaderView(leader_id, "a:1", epoch, now_ms, (leader, *seen))


def other(fetched_ms: int, *, key: ReplicaKey = RIVAL, voter: bool = True) -> SeenReplica:
    return SeenReplica(key, voter, fetched_ms)


def after(doubts: Doubts, *times_ms: int, **kind: object) -> Doubts:
    for at in times_ms:
        doubts.take(view(other(at, **kind), now_ms=at + 100))  # type: ignore[arg-type]
    return doubts


def test_a_live_node_of_our_id_is_named() -> None:
    doubts = after(Doubts(ME, 1000), 1000, 1500)
    assert (doubts.problem, doubts.is_open) == (None, True)
    after(doubts, 2000)
    assert doubts.problem is not None
    assert "node.id=2 is taken" in doubts.problem
    assert doubts.is_open is False


def test_the_last_request_of_a_dead_process_is_no_sign_of_life() -> None:
    doubts = after(Doubts(ME, 1000), 1000, 1500, 1500, 1500)
    assert (doubts.problem, doubts.is_open) == (None, True)
    doubts.take(view(other(1500), now_ms=2500))
    assert (doubts.problem, doubts.is_open) == (None, False)


def test_one_fetch_whose_time_is_reckoned_anew_is_no_sign_of_life() -> None:
    """Clocks that are cut to milliseconds differ by one more or less from look to look."""
    doubts = Doubts(ME, 1000)
    for fetched_ms in (1000, 1001, 1000, 1001, 1000, 1001, 1002):
        doubts.take(view(other(fetched_ms), now_ms=1500))
        assert (doubts.problem, doubts.is_open) == (None, True)


def test_a_leader_of_our_id_lives() -> None:
    doubts = Doubts(ME, 1000)
    doubts.take(view(other(7), now_ms=7, leader_id=2))
    assert doubts.problem is not None


def test_a_new_leader_begins_anew() -> None:
    doubts = after(Doubts(ME, 1000), 1000, 1500)
    doubts.take(view(other(2000), now_ms=2000, epoch=6))
    assert doubts.problem is None


def test_our_own_key_is_ours_once_we_take_part() -> None:
    assert after(Doubts(ME, 1000), 100, 200, 300, key=ME.key).problem is not None
    doubts = after(Doubts(ME, 1000, takes_part=True), 100, 200, 300, key=ME.key)
    assert (doubts.problem, doubts.is_open, doubts.is_listed) == (None, False, True)


def test_of_two_that_take_part_the_one_without_the_vote_ends() -> None:
    mine = other(9, key=ME.key)
    voter, observer = Doubts(ME, 1000, takes_part=True), Doubts(ME, 1000, takes_part=True)
    for at in (100, 200, 300):
        voter.take(view(mine, other(at, voter=False), now_ms=at))
        observer.take(view(other(9, key=ME.key, voter=False), other(at), now_ms=at))
    assert voter.problem is None
    assert observer.problem is not None


def test_a_copied_directory_names_both_nodes() -> None:
    doubts = after(Doubts(ME, 1000), 100, 200, 300, key=ReplicaKey(3, MINE))
    assert doubts.problem is not None
    assert "node.id=2" in doubts.problem
    assert "node.id=3" in doubts.problem


def test_the_id_of_a_voter_is_refused_for_a_broker_even_if_it_is_silent() -> None:
    broker = replace(ME, may_vote=False)
    for key in (RIVAL, ReplicaKey(2, ZERO_UUID), ME.key):
        doubts = after(Doubts(broker, 1000), -1, key=key)
        assert doubts.problem is not None
        assert "node.id=2" in doubts.problem
        assert "is only a broker" in doubts.problem
    assert after(Doubts(broker, 1000), -1, voter=False).problem is None


def test_a_replica_without_directory_may_be_this_one() -> None:
    assert after(Doubts(ME, 1000), 100, 200, 300, key=ReplicaKey(2, ZERO_UUID)).problem is None


def test_one_controller_of_another_cluster_is_not_enough() -> None:
    assert other_cluster(ME, {"a:1": "mine", "b:1": "theirs"}, needed=2) is None
    said = other_cluster(ME, {"a:1": "theirs", "b:1": "theirs"}, needed=2)
    assert said is not None
    assert "cluster.id=mine" in said
    assert "cluster.id=theirs" in said


def test_another_list_of_voters_is_named_with_both() -> None:
    seen = view(other(7), other(7, key=ReplicaKey(3, MINE), voter=False), now_ms=7)
    assert other_voters(ME, [2, 1], seen) is None
    assert other_voters(ME, [], seen) is None, "the voters are in the log"
    said = other_voters(ME, [1, 2, 3], seen)
    assert said is not None
    assert "names [1, 2, 3]" in said
    assert "the voters [1, 2]" in said
