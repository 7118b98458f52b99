"""The common part of AddRaftVoter and RemoveRaftVoter.

The replica of the metadata log decides (`metadata_topic.raft.voter_changes`). The answer leaves
once the change is committed, refused, or out of time.

A node whose broker relies on the only voter in its process adds no voter. Such a broker sends no
heartbeats, so another controller would fence it.
"""

import asyncio
from typing import Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.voter_messages import voter_request_of
from metadata_topic.raft.messages import ChangeRequest, Response, VoterResponse

_BOUND: Final = (
    "node.id={0} is the only controller, and its process has a broker that counts on it: format a "
    "controller in a process of its own, and move the votes to it with `tidemark split` "
    "(docs/controllers.md)"
)


async def asked_of_quorum(quorum: MetadataNode, request: ChangeRequest) -> VoterResponse:
    """The answer of this node's replica; it may take as long as a commit."""
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def respond(answer: Response) -> None:
        if not answered.done():  # the connection may be closed by now
            answered.set_result(answer)

    quorum.receive(request, respond)
    answer = await answered
    assert isinstance(answer, VoterResponse)
    return answer


class VoterChangeHandler(DecodedHandler):
    """Answers AddRaftVoter or RemoveRaftVoter."""

    def __init__(self, quorum: MetadataNode) -> None:
        self._quorum, self._cls = quorum, response(self.api_key).cls

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Submit the change; answers once it is committed or refused."""
        quorum = self._quorum
        if request.cluster_id not in (None, quorum.cluster_id):
            return self._refused(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{request.cluster_id}" doesn\'t match the cluster id '
                f'"{quorum.cluster_id}"',
            )
        if self.api_key == ApiKey.ADD_RAFT_VOTER and quorum.is_bound_to_its_broker:
            return self._refused(ErrorCode.POLICY_VIOLATION, _BOUND.format(quorum.node_id))
        asked = voter_request_of(request, quorum.leader_epoch)
        if asked is None:
            text = "a listener must have a host of 1 to 255 characters and a port of 1 to 65535"
            return self._refused(ErrorCode.INVALID_REQUEST, text)
        answer = await asked_of_quorum(quorum, asked)
        if answer.error is ErrorCode.NONE:
            return self._cls(error_message="NONE")  # as in Kafka
        return self._refused(answer.error, answer.text or answer.error.name)

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error`: nothing was done."""
        del context, request
        return self._refused(code_of(error, "change the voters"), message_of(error))

    def _refused(self, code: ErrorCode, text: str | None) -> Any:
        return self._cls(error_code=int(code), error_message=text)
