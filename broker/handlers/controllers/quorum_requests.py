"""Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1) and FetchSnapshot (59).

Replicas of the metadata log send these to each other. `metadata_topic.quorum.wire.requests`
validates them and lists their versions; the replica decides. This module connects both.

ApiVersions names Fetch from version 4 on, as Kafka's controllers do. Below 13 it is refused,
because it has no topic id.
"""

import asyncio
from typing import Any, Final

from broker.handlers.controllers.parts import ControllerParts
from broker.network.registry import DecodedHandler, OrderedAnswer, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.wire.requests import Refused, admit
from metadata_topic.quorum.wire.responses import write_answer
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity
from metadata_topic.raft.messages import Response, Standing, VoterResponse

_OLDEST_FETCH: Final = 4


class QuorumHandler(DecodedHandler):
    """Serves one of the quorum's APIs."""

    def __init__(self, api_key: ApiKey, identity: WireIdentity, quorum: MetadataNode) -> None:
        self.api_key, self.versions = api_key, VERSIONS[api_key]
        if api_key == ApiKey.FETCH:
            self.versions = Versions(_OLDEST_FETCH, VERSIONS[api_key].last)
        self._identity, self._quorum = identity, quorum

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Refuse a request, or pass it to the replica and wait for its answer."""
        version = context.api_version
        asked = admit(self.api_key, version, request, self._identity, self._standing)
        if isinstance(asked, Refused):
            return asked.answer
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def respond(answer: Response) -> None:
            assert not isinstance(answer, VoterResponse)
            if not answered.done():  # the connection may be closed by now
                answered.set_result(write_answer(answer, version))

        self._quorum.receive(asked, respond)
        if self.api_key == ApiKey.FETCH_SNAPSHOT:
            # A chunk is a megabyte, read on a thread. A client that requests hundreds in a row and
            # does not read the answers would have them all in memory.
            return OrderedAnswer(lambda _: answered)
        return answered

    def _standing(self) -> Standing:
        return self._quorum.describe().standing


def make(parts: ControllerParts) -> tuple[QuorumHandler, ...]:
    """Make the handlers of all five APIs."""
    return tuple(QuorumHandler(key, parts.identity, parts.quorum) for key in VERSIONS)
