"""Voters that change under a running controller: all of a node on real files, without sockets."""

from pathlib import Path

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.records import make
from metadata_topic.quorum.active.decisions import Done, Outcome
from metadata_topic.raft.messages import (
    AddVoterRequest,
    ChangeRequest,
    RemoveVoterRequest,
    Response,
    UpgradeKraftVersionRequest,
    VoterResponse,
)
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


def voter(node_id: int) -> Voter:
    return Voter(key(node_id), (VoterEndpoint("CONTROLLER", "here", 9000 + node_id),))


def change(quorum: ReplicaQuorum, leader: ReplicaNode, request: ChangeRequest) -> ErrorCode:
    """Ask the leader, while its controller decides something every few milliseconds."""
    answers: list[Response] = []
    made: list[Outcome[None]] = []
    leader.replica.receive(request, answers.append)
    for turn in range(60):
        name = f"{len(leader.names)}-{turn}"
        record = make("TopicRecord", name=name, topic_id=name.encode().ljust(16, b"-"))
        result = ControllerResult((record,), None)
        leader.replica.submit(lambda _image, result=result: result, made.append)
        quorum.advance(3)
        if answers:
            break
    quorum.advance(500)
    [answer] = answers
    assert isinstance(answer, VoterResponse)
    if leader.leads:
        assert all(isinstance(one, Done) for one in made), made
    assert leader.failures == []
    return answer.error


def add(quorum: ReplicaQuorum, leader: ReplicaNode, node_id: int) -> ErrorCode:
    assert leader.driver is not None
    return change(quorum, leader, AddVoterRequest(leader.driver.core.epoch, voter(node_id)))


def remove(quorum: ReplicaQuorum, leader: ReplicaNode, node_id: int) -> ErrorCode:
    assert leader.driver is not None
    return change(quorum, leader, RemoveVoterRequest(leader.driver.core.epoch, key(node_id)))


def test_one_controller_becomes_three_and_three_become_the_two_others(tmp_path: Path) -> None:
    quorum = ReplicaQuorum(tmp_path, [1], controllers=[2, 3], is_dynamic=True)
    quorum.start()
    first = quorum.elect_active()
    quorum.advance(1_000)
    assert add(quorum, first, 2) is ErrorCode.NONE
    assert add(quorum, first, 3) is ErrorCode.NONE
    assert add(quorum, first, 3) is ErrorCode.DUPLICATE_VOTER
    known = first.names
    assert remove(quorum, first, 1) is ErrorCode.NONE
    assert not first.leads, "it is no voter any more"
    leader = quorum.elect_active()
    assert leader.id in {2, 3}
    quorum.create(leader, "after")
    quorum.advance(5_000)  # the one that was removed looks for the new leader
    for node in quorum.replicas:
        assert node.replica.history.latest.voters == leader.replica.history.latest.voters
        assert node.names >= known | {"after"}
    first.kill()
    quorum.create(leader, "without the first")

    for node in quorum.replicas:
        node.kill()
    quorum.start()
    leader = quorum.elect_active()
    assert leader.id in {2, 3}, "the log says who votes"
    quorum.advance(1_000)
    assert all("without the first" in node.names for node in quorum.replicas)


def test_who_was_one_of_two_and_is_left_alone_starts_and_leads(tmp_path: Path) -> None:
    """Its quorum-state says that it followed the other one, which has removed itself."""
    quorum = ReplicaQuorum(tmp_path, [1, 2], is_dynamic=True)
    quorum.start()
    gone = quorum.elect_active()
    quorum.advance(1_000)
    [left] = [node for node in quorum.replicas if node is not gone]
    answers: list[Response] = []
    assert gone.driver is not None
    request = RemoveVoterRequest(gone.driver.core.epoch, gone.driver.core.key)
    gone.replica.receive(request, answers.append)
    for _ in range(1_000):
        quorum.advance(1)
        if left.replica.history.latest.voters == VoterSet((voter(left.id),)):
            break
    else:
        raise AssertionError("it does not hear of it")
    gone.kill()
    left.kill()
    left.start()
    assert quorum.elect_active() is left
    quorum.create(left, "alone")


def test_static_voters_come_into_the_log_and_change_after_a_restart(tmp_path: Path) -> None:
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3], controllers=[4])
    *voted, added = quorum.replicas
    for node in voted:
        node.start()
    leader = quorum.elect_active()
    quorum.create(leader, "before")
    assert leader.driver is not None
    asked = UpgradeKraftVersionRequest(leader.driver.core.epoch, 1)
    assert change(quorum, leader, asked) is ErrorCode.INVALID_UPDATE_VERSION, "they say it later"
    quorum.advance(5_000)
    assert change(quorum, leader, asked) is ErrorCode.NONE
    known = leader.names
    wanted = QuorumFacts(1, VoterSet((voter(1), voter(2), voter(3))), in_log=True)
    quorum.advance(1_000)
    assert [node.replica.history.latest for node in voted] == [wanted] * 3

    for is_dynamic in (False, True):  # the setting is there once more, then it is taken out
        quorum.is_dynamic = is_dynamic
        for node in voted:
            node.replica.close(node.kill)
            quorum.advance(10_000)
            assert node.driver is None
            node.start()
        leader = quorum.elect_active()
        quorum.advance(5_000)
        assert all(node.names >= known for node in voted)
        assert [node.replica.history.latest for node in voted] == [wanted] * 3
    for node in voted:
        assert b'"data_version":1' in (node.directory / "quorum-state").read_bytes()
    added.start()
    quorum.advance(5_000)
    assert add(quorum, leader, 4) is ErrorCode.NONE
    gone = next(node for node in voted if node is not leader)
    assert remove(quorum, leader, gone.id) is ErrorCode.NONE
    gone.kill()
    quorum.create(leader, "after")
    assert wanted.voters is not None
    assert leader.replica.history.latest.voters == wanted.voters.with_voter(voter(4)).without(
        gone.id
    )
