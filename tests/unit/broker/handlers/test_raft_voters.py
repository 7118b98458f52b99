"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter between the wire and the replica."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.handlers.add_raft_voter import AddRaftVoterHandler
from broker.handlers.controllers.update_raft_voter import UpdateRaftVoterHandler
from broker.handlers.remove_raft_voter import RemoveRaftVoterHandler
from broker.handlers.voter_change import VoterChangeHandler
from broker.network.registry import RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.messages import (
    AddVoterRequest,
    Node,
    RemoveVoterRequest,
    Request,
    Standing,
    UpdateVoterRequest,
    VoterResponse,
)
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint

EPOCH, DIRECTORY, PLACE = 5, b"d" * 16, ("CONTROLLER", "h", 9093)
KEY, ENDPOINT = ReplicaKey(3, DIRECTORY), VoterEndpoint(*PLACE)
LEADER = Standing(EPOCH, 2, Node(2, "leader", 9095))
ADD, REMOVE, UPDATE = ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER


@dataclass
class Quorum:
    """A replica that answers all alike."""

    answer: VoterResponse = field(default_factory=lambda: VoterResponse(ErrorCode.NONE, LEADER))
    asked: list[Request] = field(default_factory=list)
    is_bound_to_its_broker: bool = False
    cluster_id: str = "c"
    node_id: int = 1
    leader_epoch: int = EPOCH

    def receive(self, request: Request, respond: Any) -> None:
        self.asked.append(request)
        respond(self.answer)

    def describe(self) -> QuorumView:
        return QuorumView(epoch=EPOCH, leader_id=2, leader=LEADER.leader)


async def ask(quorum: Any, key: ApiKey, version: int = 0, **fields: Any) -> Any:
    """Through the codec, both ways."""
    codec = request(key)
    places = fields.pop("places", (PLACE,))
    if key != REMOVE:
        fields["listeners"] = [
            codec.cls.Listeners(name=name, host=host, port=port) for name, host, port in places
        ]
    if key == UPDATE:
        fields["kraft_version_feature"] = codec.cls.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=2
        )
    known = {"cluster_id": None, "voter_id": 3, "voter_directory_id": DIRECTORY}
    read, _ = codec.decode(codec.encode(codec.cls(**known | fields), version), version)
    handler: Any = UpdateRaftVoterHandler(quorum) if key == UPDATE else _change(key, quorum)
    context = RequestContext(key, version, 1, "", "CONTROLLER", ("127.0.0.1", 1), 0)
    answer = response(key)
    told, _ = answer.decode(answer.encode(await handler.handle(context, read), version), version)
    return told


def _change(key: ApiKey, quorum: Any) -> VoterChangeHandler:
    return AddRaftVoterHandler(quorum) if key == ADD else RemoveRaftVoterHandler(quorum)


@pytest.mark.parametrize(
    ("key", "version", "fields", "asked"),
    [
        (ADD, 0, {}, AddVoterRequest(EPOCH, Voter(KEY, (ENDPOINT,)))),
        (ADD, 1, {"cluster_id": "c"}, AddVoterRequest(EPOCH, Voter(KEY, (ENDPOINT,)))),
        (
            ADD,
            1,
            {"ack_when_committed": False},
            AddVoterRequest(EPOCH, Voter(KEY, (ENDPOINT,)), waits_for_commit=False),
        ),
        (REMOVE, 0, {}, RemoveVoterRequest(EPOCH, KEY)),
        (
            UPDATE,
            0,
            {"current_leader_epoch": 4},
            UpdateVoterRequest(4, Voter(KEY, (ENDPOINT,), (0, 2))),
        ),
    ],
)
async def test_the_replica_is_asked(
    key: ApiKey, version: int, fields: dict[str, Any], asked: Request
) -> None:
    quorum = Quorum()
    answer = await ask(quorum, key, version, **fields)
    assert (answer.error_code, quorum.asked) == (0, [asked])


@pytest.mark.parametrize("key", [ADD, REMOVE])
async def test_what_the_replica_refuses_is_told_with_its_words(key: ApiKey) -> None:
    quorum = Quorum(VoterResponse(ErrorCode.DUPLICATE_VOTER, LEADER, "is one already"))
    answer = await ask(quorum, key)
    assert (answer.error_code, answer.error_message) == (126, "is one already")


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_a_voter_that_moves_hears_who_leads_whatever_is_said(code: ErrorCode) -> None:
    answer = await ask(Quorum(VoterResponse(code, LEADER)), UPDATE)
    led = answer.current_leader
    assert (led.leader_id, led.leader_epoch, led.host, led.port) == (2, EPOCH, "leader", 9095)
    assert answer.error_code == code


@pytest.mark.parametrize("key", [ADD, REMOVE, UPDATE])
async def test_another_cluster_is_refused(key: ApiKey) -> None:
    quorum = Quorum()
    answer = await ask(quorum, key, cluster_id="another")
    assert (answer.error_code, quorum.asked) == (ErrorCode.INCONSISTENT_CLUSTER_ID, [])


@pytest.mark.parametrize("key", [ADD, UPDATE])
@pytest.mark.parametrize(
    "place", [("CONTROLLER", "", 9093), ("CONTROLLER", "h", 0), ("CONTROLLER", "h" * 256, 1)]
)
async def test_bad_input_a_place_where_nobody_can_listen(
    key: ApiKey, place: tuple[str, str, int]
) -> None:
    quorum = Quorum()
    answer = await ask(quorum, key, places=(PLACE, place))
    assert (answer.error_code, quorum.asked) == (ErrorCode.INVALID_REQUEST, [])


async def test_a_lone_node_whose_broker_counts_on_it_adds_no_voter() -> None:
    quorum = Quorum(is_bound_to_its_broker=True)
    answer = await ask(quorum, ADD)
    assert (answer.error_code, quorum.asked) == (ErrorCode.POLICY_VIOLATION, [])
    assert "tidemark split" in answer.error_message
    assert (await ask(quorum, REMOVE)).error_code == 0


async def test_who_finds_no_leader_hears_so() -> None:
    quorum: Any = Quorum()
    context = RequestContext(ADD, 0, 1, "", "CONTROLLER", ("127.0.0.1", 1), 0)
    answer = _change(ADD, quorum).refuse(context, None, NotControllerError("nobody"))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
