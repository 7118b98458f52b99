"""AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82) on the wire, and ApiVersions.

Versions:

* AddRaftVoter 0: KIP-853. 1: the answer may come before the commit (KIP-1186).
* RemoveRaftVoter 0, UpdateRaftVoter 0: KIP-853.
* ApiVersions 4, so that features whose lowest level is 0 are named.

A replica is server and client of the first three; of the last one it is the client here.
"""

from collections.abc import Callable
from typing import Any, Final

from kafka_client.requests import Answer, Call, api_versions_body
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.wire.rpc import WireIdentity, usable_node
from metadata_topic.raft.messages import (
    NOBODY,
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    Reply,
    Standing,
    UpdateVoterRequest,
    VoterRequest,
    VoterResponse,
)
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint

VOTER_VERSIONS: Final[dict[ApiKey, Versions]] = {
    ApiKey.ADD_RAFT_VOTER: Versions(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: Versions(0, 0),
    ApiKey.UPDATE_RAFT_VOTER: Versions(0, 0),
}
"""Versions served and sent; both ends inclusive."""
VOTER_QUESTIONS: Final = (
    AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest, ApiVersionsRequest
)  # fmt: skip
VoterQuestion = VoterRequest | ApiVersionsRequest

_FEATURES: Final = Versions(4, 4)
_KRAFT_VERSION: Final = "kraft.version"
_WAIT_MS: Final = 2_000
_ENDPOINTS_MAX: Final = 100

# -- from the wire


def voter_request_of(body: Any, epoch: int) -> VoterRequest | None:
    """Turn a decoded request into a message for the core; None if an address is invalid.

    Args:
        body: Of one of `VOTER_VERSIONS`.
        epoch: Of this replica, for requests that have none (all but UpdateRaftVoter).
    """
    key = ReplicaKey(body.voter_id, body.voter_directory_id)
    if not hasattr(body, "listeners"):
        return RemoveVoterRequest(epoch, key)
    if len(body.listeners) > _ENDPOINTS_MAX or not all(
        usable_node(NOBODY, one.host, one.port) for one in body.listeners
    ):
        return None
    endpoints = tuple(VoterEndpoint(one.name, one.host, one.port) for one in body.listeners)
    if hasattr(body, "kraft_version_feature"):
        known = body.kraft_version_feature
        versions = known.min_supported_version, known.max_supported_version
        return UpdateVoterRequest(body.current_leader_epoch, Voter(key, endpoints, versions))
    return AddVoterRequest(epoch, Voter(key, endpoints), body.ack_when_committed)


def update_answer(error: ErrorCode, standing: Standing) -> Any:
    """Make the message struct of an answer to UpdateRaftVoter, which has the leader."""
    cls = codec.response(ApiKey.UPDATE_RAFT_VOTER).cls
    led = cls.CurrentLeader(leader_id=standing.leader_id, leader_epoch=standing.epoch)
    if standing.leader is not None:
        led.host, led.port = standing.leader.host, standing.leader.port
    return cls(error_code=int(error), current_leader=led)


# -- to the wire


def voter_call_of(
    request: VoterQuestion, identity: WireIdentity, done: Callable[[Any], None], timeout_ms: int
) -> Call:
    """Make the call of a request; `done` gets a `Reply`."""
    if isinstance(request, ApiVersionsRequest):
        api_key, body, versions = ApiKey.API_VERSIONS, api_versions_body(), _FEATURES
    else:
        api_key, body = _written(request, identity)
        versions = VOTER_VERSIONS[api_key]

    def read(answer: Answer) -> Reply:
        return _read(request, answer.decode())

    encode = codec.request(api_key).encode
    return Call(
        api_key,
        lambda version: encode(body, version),
        done,
        versions=versions,
        read=read,
        timeout_ms=timeout_ms,
    )


def _written(request: VoterRequest, identity: WireIdentity) -> tuple[ApiKey, Any]:
    if isinstance(request, RemoveVoterRequest):
        cls = codec.request(ApiKey.REMOVE_RAFT_VOTER).cls
        body = cls(voter_id=request.key.id, voter_directory_id=request.key.directory_id)
        body.cluster_id = identity.cluster_id
        return ApiKey.REMOVE_RAFT_VOTER, body
    is_new, voter = isinstance(request, AddVoterRequest), request.voter
    api_key = ApiKey.ADD_RAFT_VOTER if is_new else ApiKey.UPDATE_RAFT_VOTER
    cls = codec.request(api_key).cls
    body = cls(
        cluster_id=identity.cluster_id,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[
            cls.Listeners(name=one.name, host=one.host, port=one.port) for one in voter.endpoints
        ],
    )
    if isinstance(request, AddVoterRequest):
        body.timeout_ms, body.ack_when_committed = _WAIT_MS, request.waits_for_commit
    else:
        body.current_leader_epoch = request.epoch
        lowest, highest = voter.kraft_versions
        body.kraft_version_feature = cls.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        )
    return api_key, body


def _read(request: VoterQuestion, body: Any) -> Reply:
    error = ErrorCode.of(body.error_code)
    if isinstance(request, ApiVersionsRequest):
        found = [one for one in body.supported_features if one.name == _KRAFT_VERSION]
        versions = (found[0].min_version, found[0].max_version) if found else None
        return ApiVersionsResponse(error, versions)
    standing = Standing(request.epoch)
    led = getattr(body, "current_leader", None)
    if led is not None and led.leader_epoch >= 0:
        leader_id = max(led.leader_id, NOBODY)
        leader = usable_node(leader_id, led.host, led.port) if leader_id >= 0 else None
        standing = Standing(led.leader_epoch, leader_id, leader)
    return VoterResponse(error, standing, getattr(body, "error_message", None) or "")
