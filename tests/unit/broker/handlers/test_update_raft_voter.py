"""What a voter that says where it listens is told; its codes, in their order, are Kafka's."""

from dataclasses import replace
from typing import Any

import pytest

from broker.handlers.controllers.update_raft_voter import UpdateRaftVoterHandler, judge
from broker.network.registry import RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.quorum.view import QuorumView
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

EPOCH, DIRECTORY, PLACE = 5, b"d" * 16, ("CONTROLLER", "h", 9093)
LEADS = QuorumView(epoch=EPOCH, leader_id=1, is_leader=True, high_watermark=9)
FOLLOWS = QuorumView(epoch=EPOCH, leader_id=2, high_watermark=9)
ELECTED = QuorumView(epoch=EPOCH, leader_id=1, is_leader=True)


def asked_of(**changes: Any) -> Any:
    cls = request(ApiKey.UPDATE_RAFT_VOTER).cls
    lowest, highest = changes.pop("versions", (0, 1))
    places = changes.pop("places", (PLACE,))
    said = {"current_leader_epoch": EPOCH, "voter_id": 3, "voter_directory_id": DIRECTORY}
    return cls(
        **said | changes,
        listeners=[cls.Listeners(name=name, host=host, port=port) for name, host, port in places],
        kraft_version_feature=cls.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        ),
    )


def told(asked: Any, view: QuorumView = LEADS, *, kraft_version: int = 1) -> ErrorCode:
    directory_id = DIRECTORY if kraft_version else ZERO_UUID
    voters = VoterSet((Voter(ReplicaKey(3, directory_id), (VoterEndpoint(*PLACE),)),))
    return judge(asked, view, voters, kraft_version, "CONTROLLER")


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_nothing_changes(kraft_version: int) -> None:
    assert told(asked_of(), kraft_version=kraft_version) is ErrorCode.NONE


def test_static_voters_are_those_of_the_file() -> None:
    """A voter of another place or of kraft.version 0 alone is well: nothing is noted of it."""
    moved = asked_of(places=(("CONTROLLER", "elsewhere", 1),), versions=(0, 0))
    assert told(moved, kraft_version=0) is ErrorCode.NONE
    assert told(asked_of(voter_id=4), kraft_version=0) is ErrorCode.VOTER_NOT_FOUND


@pytest.mark.parametrize(
    "changes",
    [
        {"places": (("CONTROLLER", "elsewhere", 9093),)},
        {"places": (PLACE, ("SECOND", "h", 9094))},
        {"versions": (1, 1)},
        {"versions": (0, 2)},
    ],
)
def test_a_change_is_not_made(changes: dict[str, Any]) -> None:
    assert told(asked_of(**changes)) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("changes", "view", "code"),
    [
        ({"current_leader_epoch": EPOCH - 1}, FOLLOWS, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": EPOCH + 1}, FOLLOWS, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"voter_id": -1}, FOLLOWS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"voter_id": -1}, ELECTED, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": ZERO_UUID}, LEADS, ErrorCode.INVALID_REQUEST),
        ({"places": ()}, LEADS, ErrorCode.INVALID_REQUEST),
        ({"places": (("SECOND", "h", 9094),)}, LEADS, ErrorCode.INVALID_REQUEST),
        ({"versions": (-1, 1)}, LEADS, ErrorCode.INVALID_REQUEST),
        ({"versions": (1, 0)}, LEADS, ErrorCode.INVALID_REQUEST),
        ({"versions": (0, 0)}, ELECTED, ErrorCode.REQUEST_TIMED_OUT),
        ({"versions": (0, 0)}, LEADS, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 4}, LEADS, ErrorCode.VOTER_NOT_FOUND),
        ({"voter_directory_id": b"x" * 16}, LEADS, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_it_is_refused(changes: dict[str, Any], view: QuorumView, code: ErrorCode) -> None:
    assert told(asked_of(**changes), view) is code


class Quorum:
    """A voter that follows the leader of another place; static voters."""

    voters, kraft_version = VoterSet(()), 0

    def describe(self) -> QuorumView:
        return replace(FOLLOWS, leader=Node(2, "leader", 9095))


@pytest.mark.parametrize(
    ("cluster_id", "code"),
    [
        (None, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("c", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("another", ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_whatever_is_said_the_leader_is_named(cluster_id: str | None, code: ErrorCode) -> None:
    quorum: Any = Quorum()
    handler = UpdateRaftVoterHandler(WireIdentity("c", "CONTROLLER"), quorum)
    context = RequestContext(82, 0, 1, "", "CONTROLLER", ("127.0.0.1", 1), 0)
    answer = handler.handle(context, asked_of(cluster_id=cluster_id))
    led = answer.current_leader
    assert ErrorCode.of(answer.error_code) is code
    assert (led.leader_id, led.leader_epoch, led.host, led.port) == (2, EPOCH, "leader", 9095)
