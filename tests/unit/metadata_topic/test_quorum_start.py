"""How a node takes part in its quorum: what starts as what, and what must not start."""

from dataclasses import replace
from pathlib import Path

import pytest

from metadata_topic.quorum.driver.quorum_state_file import (
    QuorumStateError,
    QuorumStateFile,
    dump_quorum_state,
    parse_quorum_state,
)
from metadata_topic.quorum.errors import QuorumConfigError
from metadata_topic.quorum.start.quorum_start import (
    ABSTAINED,
    AbstentionError,
    FoundQuorum,
    Membership,
    MissingQuorumStateError,
    QuorumSettings,
    abstain_until,
    plan_quorum_start,
    static_voter_set,
)
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import Respond
from metadata_topic.raft.events import ElectionState, Received, Started
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    BOOTSTRAP_ID,
    NOBODY,
    Node,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.disk import Disk

DISK = b"d" * 16
OTHER_DISK = b"o" * 16
ME = ReplicaKey(1, DISK)
NODES = tuple(Node(i, f"host-{i}", 9090 + i) for i in (1, 2, 3))
SERVERS = (Node(NOBODY, "boot", 9093),)
STATIC = QuorumSettings(is_controller=True, static_voters=NODES, listener_name="C")
DYNAMIC = QuorumSettings(is_controller=True, bootstrap_servers=SERVERS)
NEW = FoundQuorum(
    directory="/logs",
    election=None,
    history=((0, QuorumFacts()),),
    end_offset=0,
    newest_snapshot=None,
)


def voter(node_id: int, directory: bytes) -> Voter:
    return Voter(ReplicaKey(node_id, directory), (VoterEndpoint("C", f"host-{node_id}", 9093),))


THREE = VoterSet((voter(1, DISK), voter(2, b"2" * 16), voter(3, b"3" * 16)))


def with_voters(voters: VoterSet, found: FoundQuorum = NEW) -> FoundQuorum:
    return replace(
        found, history=((0, QuorumFacts(1, voters)),), newest_snapshot=found.newest_snapshot
    )


USED = replace(NEW, end_offset=7, election=ElectionState(3))


def test_static_voters_have_endpoints_and_no_directories() -> None:
    start = plan_quorum_start(ME, STATIC, NEW)
    assert start.membership is Membership.VOTER
    assert start.static_nodes == NODES
    assert start.voters.voters[1] == Voter(ReplicaKey(2), (VoterEndpoint("C", "host-2", 9092),))
    assert start.history == ((0, QuorumFacts(0, static_voter_set(NODES, "C"))),)
    assert start.election == ElectionState()
    assert start.notes == ()


def test_the_voters_of_the_log_win_over_those_of_the_configuration() -> None:
    settings = replace(STATIC, static_voters=NODES[:2])
    start = plan_quorum_start(ME, settings, with_voters(THREE))
    assert start.voters == THREE
    assert start.static_nodes == ()
    assert start.bootstrap == (replace(NODES[1], id=NOBODY),)


def test_voters_by_offset_stay_by_offset() -> None:
    found = replace(NEW, history=((0, QuorumFacts()), (5, QuorumFacts(1, THREE, in_log=True))))
    history = plan_quorum_start(ME, STATIC, replace(found, end_offset=0)).history
    assert [facts.voters for _, facts in history] == [static_voter_set(NODES, "C"), THREE]


ALONE = replace(STATIC, static_voters=NODES[:1])


@pytest.mark.parametrize(
    ("me", "settings", "found", "membership"),
    [
        (ME, ALONE, NEW, Membership.SOLE_VOTER),
        (ME, ALONE, replace(USED, election=ElectionState(3)), Membership.SOLE_VOTER),
        (ME, DYNAMIC, with_voters(VoterSet((voter(1, DISK),))), Membership.SOLE_VOTER),
        (ME, DYNAMIC, with_voters(THREE), Membership.VOTER),
        (ReplicaKey(1, OTHER_DISK), DYNAMIC, with_voters(THREE), Membership.OBSERVER_CONTROLLER),
        (ReplicaKey(4, OTHER_DISK), DYNAMIC, with_voters(THREE), Membership.OBSERVER_CONTROLLER),
        (ME, DYNAMIC, NEW, Membership.OBSERVER_CONTROLLER),  # --no-initial-controllers
        (
            ReplicaKey(7, OTHER_DISK),
            replace(STATIC, is_controller=False),
            USED,
            Membership.OBSERVER_BROKER,
        ),
    ],
)
def test_what_a_node_is(
    me: ReplicaKey, settings: QuorumSettings, found: FoundQuorum, membership: Membership
) -> None:
    start = plan_quorum_start(me, settings, found)
    assert start.membership is membership
    assert bool(start.notes) == (membership is Membership.OBSERVER_CONTROLLER)


@pytest.mark.parametrize(
    ("me", "settings", "found", "words"),
    [
        (ReplicaKey(9, DISK), STATIC, NEW, ["controller.quorum.voters=1@host-1", "node.id=9"]),
        (ME, replace(STATIC, static_voters=(*NODES, NODES[0])), NEW, ["twice", "1@host-1"]),
        (
            ReplicaKey(4, b"2" * 16),
            DYNAMIC,
            with_voters(THREE),
            ["MjIyMjIyMjIyMjIyMjIyMg", "voter 2", "node.id=4"],
        ),
        (
            ReplicaKey(1, OTHER_DISK),
            DYNAMIC,
            with_voters(VoterSet((voter(1, DISK),))),
            ["ZGRkZGRkZGRkZGRkZGRkZA", "b29vb29vb29vb29vb29vbw"],
        ),
        (
            ME,
            DYNAMIC,
            replace(USED, election=ElectionState(3, None, ReplicaKey(1))),
            ["node.id=1", "epoch 3", "controller.quorum.voters"],
        ),
        (
            ReplicaKey(2, OTHER_DISK),
            replace(DYNAMIC, is_controller=False),
            with_voters(THREE),
            ["node.id=2 is only a broker", "[1, 2, 3]"],
        ),
        (
            ReplicaKey(7, OTHER_DISK),
            replace(STATIC, is_controller=False),
            replace(USED, election=ElectionState(3, None, ReplicaKey(1))),
            ["vote of epoch 3", "node.id=7", "remove"],
        ),
        (
            ReplicaKey(7, OTHER_DISK),
            replace(STATIC, is_controller=False),
            replace(USED, election=ElectionState(3, 7, None)),
            ["vote of epoch 3", "node.id=7", "remove"],
        ),
        # The directory of a broker, or of one of several, is to lead alone.
        (ME, ALONE, replace(USED, election=ElectionState(3, 2, None)), ["followed others", "3"]),
        (
            ME,
            ALONE,
            replace(USED, election=ElectionState(3, None, ReplicaKey(2))),
            ["followed others", "epoch 3", "move"],
        ),
    ],
)
def test_what_contradicts_itself_does_not_start(
    me: ReplicaKey, settings: QuorumSettings, found: FoundQuorum, words: list[str]
) -> None:
    with pytest.raises(QuorumConfigError) as error:
        plan_quorum_start(me, settings, found)
    for word in words:
        assert word in str(error.value)


def test_a_new_disk_of_the_sole_voter_starts_only_if_another_node_led() -> None:
    me, alone = ReplicaKey(1, OTHER_DISK), VoterSet((voter(1, DISK),))
    for election in (ElectionState(3, 2), ElectionState(3, None, ReplicaKey(2)), ElectionState(4)):
        found = with_voters(alone, replace(USED, election=election))
        start = plan_quorum_start(me, DYNAMIC, found)
        assert start.membership is Membership.OBSERVER_CONTROLLER
    for own in (ElectionState(3, 1), ElectionState(3, None, ME), None):
        found = with_voters(alone, replace(USED, election=own))
        with pytest.raises(QuorumConfigError, match="no other node can lead"):
            plan_quorum_start(me, DYNAMIC, found)


LOST = replace(USED, election=None)


@pytest.mark.parametrize(
    "found",
    [LOST, replace(NEW, newest_snapshot=SnapshotId(10, 2)), with_voters(THREE, LOST)],
)
def test_one_of_several_voters_without_quorum_state_does_not_start(found: FoundQuorum) -> None:
    settings = DYNAMIC if found.history[0][1].kraft_version else STATIC
    with pytest.raises(MissingQuorumStateError) as error:
        plan_quorum_start(ME, settings, found)
    for word in ("/logs/quorum-state", "node 1", "tidemark directories abstain --epoch N"):
        assert word in str(error.value)


def test_a_controller_without_a_vote_needs_its_quorum_state_to_start() -> None:
    with pytest.raises(MissingQuorumStateError, match="a controller without a vote"):
        plan_quorum_start(ReplicaKey(4, OTHER_DISK), DYNAMIC, with_voters(THREE, LOST))


@pytest.mark.parametrize(
    ("me", "settings", "found"),
    [
        (ME, ALONE, LOST),
        (ReplicaKey(7, OTHER_DISK), replace(STATIC, is_controller=False), LOST),
        (ME, STATIC, NEW),
        (ME, DYNAMIC, with_voters(THREE, replace(NEW, newest_snapshot=BOOTSTRAP_ID))),
    ],
)
def test_who_continues_without_quorum_state(
    me: ReplicaKey, settings: QuorumSettings, found: FoundQuorum
) -> None:
    assert plan_quorum_start(me, settings, found).election == ElectionState()


def test_an_unreadable_quorum_state_is_no_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "quorum-state"
    file = QuorumStateFile(tmp_path, Disk())
    assert file.find() is None
    assert file.read() == ElectionState()
    path.write_bytes(b"")
    with pytest.raises(QuorumStateError, match="tidemark directories abstain"):
        file.find()
    assert path.read_bytes() == b""


# -- a voter that abstains ----------------------------------------------------------------------


def vote_for(candidate: int, epoch: int) -> VoteRequest:
    key = THREE.voters[candidate - 1].key
    return VoteRequest(epoch, key, ANY_REPLICA, last_epoch=2, end_offset=9, pre_vote=False)


def granted(core: RaftCore, candidate: int, epoch: int) -> bool:
    effects = core.step(Received(candidate, vote_for(candidate, epoch), 0.5), 10)
    (response,) = [one.response for one in effects if isinstance(one, Respond)]
    assert isinstance(response, VoteResponse)
    return response.granted


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_spent_vote_is_not_given_again_and_the_next_epochs_is(kraft_version: int) -> None:
    data = dump_quorum_state(abstain_until(8, 2), kraft_version=kraft_version, voters=THREE)
    election = parse_quorum_state(data)
    core = RaftCore(ME, RaftConfig())
    facts = QuorumFacts(kraft_version, THREE, in_log=True)
    core.step(Started(election, 0, 7, ((2, 0),), (), ((0, facts),), 0.5), 0)
    assert (core.role, core.epoch) == (Role.UNATTACHED, 8)
    assert not granted(core, 2, 8)
    assert not granted(core, 3, 8)
    assert granted(core, 3, 9)
    assert not granted(core, 2, 9)


def test_a_voter_that_abstains_stands_in_the_epoch_after() -> None:
    election = abstain_until(8, 8)
    assert election == ElectionState(8, None, ABSTAINED)
    core = RaftCore(ME, RaftConfig())
    facts = QuorumFacts(1, VoterSet((voter(1, DISK),)), in_log=True)
    core.step(Started(election, 0, 7, ((2, 0),), (), ((0, facts),), 0.5), 0)
    assert core.epoch == 9


@pytest.mark.parametrize("epoch", [-1, 4, 2**31 - 1])
def test_an_epoch_that_cannot_be_the_highest_is_refused(epoch: int) -> None:
    with pytest.raises(AbstentionError, match=r"at least 5"):
        abstain_until(epoch, 5)


def test_a_sole_voter_by_its_log_starts_although_it_followed_another() -> None:
    """The others have been removed; what removed them is committed by this disk alone."""
    alone = VoterSet((voter(1, DISK),))
    found = replace(USED, election=ElectionState(3, 2, None))
    before, after = QuorumFacts(1, THREE, in_log=True), QuorumFacts(1, alone, in_log=True)
    in_log = replace(found, history=((0, before), (6, after)))
    assert plan_quorum_start(ME, DYNAMIC, in_log).membership is Membership.SOLE_VOTER
    with pytest.raises(QuorumConfigError, match="followed others"):
        plan_quorum_start(ME, DYNAMIC, with_voters(alone, found))


def test_a_part_of_a_log_in_which_it_voted_alone_does_not_lead() -> None:
    """Its directory was removed, and it was killed before it had fetched all of it again."""
    alone = VoterSet((voter(1, DISK),))
    for election in (ElectionState(3, 2, None), ElectionState(3, None, ReplicaKey(2))):
        part = with_voters(alone, replace(USED, election=election))
        in_log = replace(part, history=((6, QuorumFacts(1, alone, in_log=True)),))
        with pytest.raises(QuorumConfigError, match=r"followed node 2 in epoch 3, .* offset 7"):
            plan_quorum_start(ME, DYNAMIC, in_log)
    for own in (ElectionState(3, 1), ElectionState(3, None, ME), abstain_until(3, 2), None):
        start = plan_quorum_start(ME, DYNAMIC, replace(in_log, election=own))
        assert start.membership is Membership.SOLE_VOTER
