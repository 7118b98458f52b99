"""UpdateRaftVoter (82): updates a voter's endpoints and its supported kraft.version.

Versions:

* 0: KIP-853; flexible from the start.

A voter in the metadata log is changed there; the answer does not wait for the commit. The data of a
static voter are kept in memory until the log has its voters.
"""

from typing import Any

from broker.handlers.controllers.parts import ControllerParts
from broker.handlers.voter_change import asked_of_quorum
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.voter_messages import (
    VOTER_VERSIONS,
    update_answer,
    voter_request_of,
)


class UpdateRaftVoterHandler(DecodedHandler):
    """Answers UpdateRaftVoter on a controllers' listener."""

    api_key = ApiKey.UPDATE_RAFT_VOTER
    versions = VOTER_VERSIONS[api_key]

    def __init__(self, quorum: MetadataNode) -> None:
        self._quorum = quorum

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Update the voter; the answer has the current leader."""
        quorum = self._quorum
        if request.cluster_id not in (None, quorum.cluster_id):
            return self._refused(ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = voter_request_of(request, quorum.leader_epoch)
        if asked is None:
            return self._refused(ErrorCode.INVALID_REQUEST)
        answer = await asked_of_quorum(quorum, asked)
        return update_answer(answer.error, answer.standing)

    def _refused(self, code: ErrorCode) -> Any:
        return update_answer(code, self._quorum.describe().standing)


def make(parts: ControllerParts) -> UpdateRaftVoterHandler:
    """Make the handler of UpdateRaftVoter."""
    return UpdateRaftVoterHandler(parts.quorum)
