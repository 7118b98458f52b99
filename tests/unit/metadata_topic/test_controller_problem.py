"""A controller that cannot do what is finalised follows and never leads."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.features import controller_problem
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.image.records import make
from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from metadata_topic.raft.effects import Respond
from metadata_topic.raft.events import AbleToLead
from metadata_topic.raft.messages import EndQuorumEpochRequest, VoteRequest, VoteResponse
from metadata_topic.raft.roles import Role
from tests.support.worlds.node_home import Home
from tests.support.worlds.replica_quorum import ReplicaNode, ReplicaQuorum
from tests.support.worlds.scripted_core import ScriptedCore, key

KAFKA = Path(__file__).parents[2] / "golden/cluster-metadata/static-quorum" / METADATA_DIRECTORY


@pytest.mark.parametrize(
    ("level", "kraft_version", "named"),
    [
        (0, 0, ""),
        (7, 0, ""),
        (30, 1, ""),
        (6, 0, "metadata.version is finalised at level 6"),
        (31, 0, "metadata.version is finalised at level 31"),
        (30, 2, "kraft.version is finalised at level 2"),
    ],
)
def test_levels_outside_what_is_served_are_a_problem(
    level: int, kraft_version: int, named: str
) -> None:
    brokers_only = {"group.version": 9, "share.version": 9}
    image = replace(EMPTY_IMAGE, features={"metadata.version": level} | brokers_only)
    problem = controller_problem(image, kraft_version)
    assert problem.startswith(named) if named else problem == ""


# -- the core ---------------------------------------------------------------------------------


def unable(node: ScriptedCore) -> ScriptedCore:
    node.step(AbleToLead(is_able=False, random=0.0))
    return node


def test_a_leader_that_is_no_longer_able_resigns_and_stands_no_more() -> None:
    node = ScriptedCore()
    node.lead()
    unable(node)
    assert node.core.role is Role.RESIGNED
    assert len(node.take(EndQuorumEpochRequest)) == 2
    node.run_until(node.now_ms + 60_000)
    assert (node.core.role, node.take(VoteRequest)) == (Role.UNATTACHED, [])


def test_one_that_is_unable_votes_and_stands_once_it_is_able() -> None:
    node = unable(ScriptedCore())
    node.run_until(10_000)
    assert node.core.epoch == 0
    (answer,) = node.ask(VoteRequest(1, key(1), key(2), 0, 0, pre_vote=False))
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, VoteResponse)
    assert (answer.response.error, answer.response.granted) == (ErrorCode.NONE, True)
    node.step(AbleToLead(is_able=True, random=0.0))
    node.run_until(node.now_ms + 10_000)
    assert node.core.role is Role.PROSPECTIVE


def test_a_candidate_that_becomes_unable_resigns_as_soon_as_it_leads() -> None:
    node = ScriptedCore()
    vote, _ = node.stand()
    unable(node)
    node.answer(vote, node.yes())
    assert node.core.role is not Role.LEADER


def test_a_sole_voter_that_is_unable_rests() -> None:
    node = ScriptedCore(voters=(2,))
    unable(node)
    node.run_until(60_000)
    assert node.core.role is Role.UNATTACHED


# -- the node ---------------------------------------------------------------------------------


def feature(quorum: ReplicaQuorum, leader: ReplicaNode, name: str, level: int) -> None:
    record = make("FeatureLevelRecord", name=name, feature_level=level)
    leader.replica.submit(lambda _: ControllerResult((record,), None), lambda _: None)
    quorum.advance(5_000)


def test_a_quorum_whose_log_asks_for_more_has_no_leader_of_ours(tmp_path: Path) -> None:
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    quorum.start()
    feature(quorum, quorum.elect_active(), "metadata.version", 31)
    quorum.advance(20_000)
    problems = [node.replica.controller_problem for node in quorum.replicas]
    named = "metadata.version is finalised at level 31"
    assert len([one for one in problems if named in one]) >= 2, "a majority has the record"
    for node in quorum.replicas:
        assert not node.leads
        assert node.failures == []


def test_a_replica_that_starts_with_a_problem_neither_stands_nor_leads() -> None:
    """Nothing tells it later: the problem is the same with the first image that it applies."""
    node = ScriptedCore(voters=(2,), is_able_to_lead=False)
    node.run_until(60_000)
    assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, 0)


def test_features_of_brokers_leave_the_leader_in_place(tmp_path: Path) -> None:
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    quorum.start()
    leader = quorum.elect_active()
    feature(quorum, leader, "group.version", 9)
    assert leader.leads
    assert leader.replica.image.features["group.version"] == 9


def test_a_log_that_kafka_formatted_with_its_defaults_gets_a_leader(tmp_path: Path) -> None:
    quorum = ReplicaQuorum(tmp_path, [1, 2, 3])
    for node in quorum.replicas:
        shutil.copytree(KAFKA, node.directory)
    quorum.start()
    leader = quorum.elect_active()
    features = leader.replica.image.features
    assert features.keys() >= {"group.version", "share.version", "streams.version"}
    assert features["eligible.leader.replicas.version"] == 1
    quorum.create(leader, "ours")
    quorum.advance(1_000)
    assert all("ours" in node.names for node in quorum.replicas)


async def test_a_sole_voter_says_at_the_start_why_it_cannot_lead(tmp_path: Path) -> None:
    home = Home(tmp_path)
    node = home.node()
    await node.begin()
    record = make("FeatureLevelRecord", name="metadata.version", feature_level=31)
    await node.submit(lambda _: ControllerResult((record,), None))
    assert not node.is_leader
    assert node.controller_problems()
    await node.close()
    with pytest.raises(UnusableMetadataError, match=r"metadata\.version is finalised at level 31"):
        home.node().open()
