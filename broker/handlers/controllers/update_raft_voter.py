"""UpdateRaftVoter (82): a voter says where it listens, and which kraft.version it can do.

Versions:

* 0: KIP-853; flexible from the start.

With static voters Kafka's leader notes it in memory, for the day on which the voters go into the
log; ours has no such day, and has nothing to note. A voter that stands in the log as it says is
told so. DIFFERS: a change of it is 35, by which Kafka's voter asks this leader no more.
"""

from typing import Any, Final

from broker.handlers.controllers.parts import ControllerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.view import QuorumView
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

_Response: Final = response(ApiKey.UPDATE_RAFT_VOTER).cls


class UpdateRaftVoterHandler(DecodedHandler):
    """Answers UpdateRaftVoter on a controllers' listener."""

    api_key = ApiKey.UPDATE_RAFT_VOTER
    versions = Versions(0, 0)

    def __init__(self, identity: WireIdentity, quorum: MetadataNode) -> None:
        self._identity, self._quorum = identity, quorum

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer, with who leads; nothing is changed."""
        quorum, view = self._quorum, self._quorum.describe()
        if request.cluster_id not in (None, self._identity.cluster_id):
            code = ErrorCode.INCONSISTENT_CLUSTER_ID
        else:
            code = judge(
                request, view, quorum.voters, quorum.kraft_version, self._identity.listener_name
            )
        leader = _Response.CurrentLeader(leader_id=view.leader_id, leader_epoch=view.epoch)
        if view.leader is not None:
            leader.host, leader.port = view.leader.host, view.leader.port
        return _Response(error_code=int(code), current_leader=leader)


def judge(
    asked: Any, view: QuorumView, voters: VoterSet, kraft_version: int, listener_name: str
) -> ErrorCode:
    """What a voter that says `asked` of itself is told; the checks are Kafka's, in its order.

    Args:
        asked: the request.
        view: the quorum as this node sees it.
        voters: who votes.
        kraft_version: 0 where they are static.
        listener_name: of the controllers' listener.
    """
    lowest = asked.kraft_version_feature.min_supported_version
    highest = asked.kraft_version_feature.max_supported_version
    endpoints = tuple(VoterEndpoint(one.name, one.host, one.port) for one in asked.listeners)
    if asked.current_leader_epoch < view.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if asked.current_leader_epoch > view.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not view.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if (
        asked.voter_id < 0
        or asked.voter_directory_id == ZERO_UUID
        or listener_name not in {one.name for one in endpoints}
        or not 0 <= lowest <= highest
    ):
        return ErrorCode.INVALID_REQUEST
    if view.high_watermark < 0:
        return ErrorCode.REQUEST_TIMED_OUT
    if not lowest <= kraft_version <= highest:
        return ErrorCode.INVALID_REQUEST
    key = ReplicaKey(asked.voter_id, asked.voter_directory_id)
    known = voters.get(key.id)
    if known is None or not voters.has(key):
        return ErrorCode.VOTER_NOT_FOUND
    if kraft_version == 0 or _same(known, Voter(key, endpoints, (lowest, highest))):
        return ErrorCode.NONE
    return ErrorCode.UNSUPPORTED_VERSION


def _same(known: Voter, said: Voter) -> bool:
    return known.kraft_versions == said.kraft_versions and set(known.endpoints) == set(
        said.endpoints
    )


def make(parts: ControllerParts) -> UpdateRaftVoterHandler:
    """Make the handler of UpdateRaftVoter."""
    return UpdateRaftVoterHandler(parts.identity, parts.quorum)
