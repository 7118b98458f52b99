"""Requests to other controllers: the transport of a replica of the metadata log.

One connection per address (`kafka_client`). A dead peer delays only its own requests. There are no
retries here; the core decides about them. All of it runs on the event loop's thread, without a task
per request.

Connections are in plaintext, as on the broker's listeners.
"""

import logging
from collections.abc import Callable
from typing import Any

from kafka_client.connection import KEPT, Connections
from kafka_client.exchange import ConnectionSettings
from kafka_client.requests import Answer, Call, ClientError, NotSentError
from kafka_client.transport import Address
from kafka_protocol.wire.codec import request as request_codec
from metadata_topic.quorum.log.fetched import NO_DATA, checked_prefix
from metadata_topic.quorum.wire.requests import is_sayable, write_request
from metadata_topic.quorum.wire.responses import read_answer, records_of, without_pre_vote
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity, api_of
from metadata_topic.quorum.wire.voter_messages import VOTER_QUESTIONS, voter_call_of
from metadata_topic.raft.messages import (
    FetchRequest,
    Node,
    Question,
    Reply,
    Response,
    VoteRequest,
)
from runtime.log_context import escape
from runtime.ports import Ports
from runtime.repeats_policy import Repeats, with_left_out

log = logging.getLogger(__name__)

Done = Callable[[Reply | None], None]
"""Gets the answer of a request, or None if none came."""


class _TakenForAVoteError(NotSentError):
    """The peer would take a pre-vote for a vote; `answer` is used instead of sending it."""

    def __init__(self, answer: Response) -> None:
        super().__init__("a pre-vote would be taken for a vote")
        self.answer = answer


def call_of(
    request: Question, identity: WireIdentity, done: Callable[[Any], None], timeout_ms: int
) -> Call:
    """Make the call of a request; `done` gets a `Reply` whose records are checked."""
    if isinstance(request, VOTER_QUESTIONS):
        return voter_call_of(request, identity, done, timeout_ms)
    api_key = api_of(request)

    def encode(version: int) -> bytes:
        if isinstance(request, VoteRequest) and not is_sayable(request, version):
            raise _TakenForAVoteError(without_pre_vote(request))
        body = write_request(request, version, identity)
        return request_codec(api_key).encode(body, version)

    def read(answer: Answer) -> Response:
        body = answer.decode()
        is_fetch = isinstance(request, FetchRequest)
        return read_answer(request, body, checked_prefix(records_of(body)) if is_fetch else NO_DATA)

    return Call(api_key, encode, done, versions=VERSIONS[api_key], read=read, timeout_ms=timeout_ms)


class Peers:
    """Sends requests of the quorum to other nodes; used from the event loop's thread only."""

    def __init__(self, identity: WireIdentity, node_id: int, ports: Ports) -> None:
        """Take the parts; no connection is opened before the first `send`.

        Args:
            identity: Of this replica's quorum.
            node_id: Of this node, for Kafka's client id of a replica.
            ports: Of the connections.
        """
        self._identity, self._scheduler = identity, ports.scheduler
        settings = ConnectionSettings(client_id=f"raft-client-{node_id}", request_timeout_ms=0)
        self._connections = Connections(settings, ports)
        self._repeats, self._clock = Repeats(KEPT), ports.clock
        self._is_closed = False

    def send(self, to: Node, request: Question, timeout_ms: int, done: Done) -> None:
        """Send a request; `done` is called once, after `send` returns, on the loop's thread.

        Args:
            to: The receiver; only host and port are used.
            request: The message.
            timeout_ms: For name resolution, connection and answer together.
            done: Gets the answer; None if none came in time, or none that is readable.
        """
        address = to.host, to.port

        def ended(result: Any) -> None:
            if isinstance(result, _TakenForAVoteError):
                result = result.answer
            response = None if isinstance(result, ClientError) else result
            self._log(address, "" if response is not None else str(result))
            self._scheduler.call_soon(lambda: done(response))

        call = call_of(request, self._identity, ended, max(timeout_ms, 0))
        self._connections.to(address).send(call)

    def close(self) -> None:
        """Close all connections; pending and later requests get no answer."""
        self._is_closed = True
        self._connections.close()

    def _log(self, address: Address, reason: str) -> None:
        """Log once for each reason that a controller does not answer, and that it answers again."""
        if self._is_closed:
            return
        where = escape(address[0]), address[1]
        if reason:
            left_out = self._repeats.failed(address, self._clock.monotonic_ms(), reason)
            if left_out is not None:
                text = "a controller cannot be asked: address=%s:%d reason=%s"
                log.warning(with_left_out(text, left_out), *where, escape(reason, 300))
        elif self._repeats.ended(address):
            log.info("a controller answers again: address=%s:%d", *where)
