"""A node's connections to the active controller, which may be in another process.

This node's replica of the metadata log has its address. Requests of clients are forwarded in an
Envelope; the broker's own requests are sent as they are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from broker.node.envelope import VERSION, answer_in, envelope_bytes, envelope_of
from kafka_client.connection import Connections
from kafka_client.exchange import ConnectionSettings
from kafka_client.requests import NoAnswerError, NotSentError, UnsupportedError
from kafka_client.transport import Network
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.quorum.active.submit import DecisionTimedOut, wait_for_all
from metadata_topic.quorum.node import MetadataNode, MetadataUnavailable
from runtime.ports import Ports

_CONNECT_MS: Final = 2_000
_WAY_MS: Final = 100
"""Added to a client's timeout, for the way of an answer that was given in time."""
_GRACE_MS: Final = 1_000
"""A connection counts as broken this much later: others have requests under way on it."""
_LARGE_BYTES: Final = 1 << 20
"""Larger envelopes have a connection of their own: a controller with a lower limit ends that one
only."""
ENVELOPE_BYTES_MAX: Final = 100 << 20
"""Kafka's default of `socket.request.max.bytes`."""
IMAGE_MS: Final = 5_000
_LIFECYCLE: Final = frozenset({
    ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.DESCRIBE_QUORUM,
})  # fmt: skip
"""Requests with a connection of their own.

A broker whose heartbeats wait behind slow requests is fenced. The tier's DescribeQuorum is answered
at once; a client's is forwarded in an Envelope.
"""


class Unanswered(DecisionTimedOut):
    """The connection to the active controller ended before its answer.

    The change is committed when the controller of a later epoch begins, or never.

    Attributes:
        epoch: Of that controller.
    """

    def __init__(self, text: str, epoch: int) -> None:
        super().__init__(text)
        self.epoch = epoch


class ActiveController:
    """Sends requests to the active controller; use it from the event loop's thread only."""

    def __init__(
        self,
        node: MetadataNode,
        here: Mapping[ApiKey, DecodedHandler],
        ports: Ports,
        *,
        kind: str = "broker",
        envelope_bytes_max: int = ENVELOPE_BYTES_MAX,
        network: Network | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            node: Has the leader's address.
            here: Handlers for requests while this node's own controller leads: there is no
                connection within a process.
            ports: Of the connections.
            kind: Of the node; it is the first part of its client id.
            envelope_bytes_max: `socket.request.max.bytes` of this node, and so most likely of the
                controllers.
            network: Of the connections; None: TCP.
        """
        self._scheduler, self._envelope_bytes_max = ports.scheduler, envelope_bytes_max
        self._node, self._here = node, here
        self._client_id = f"{kind}-{node.node_id}-to-controller"
        self._versions: Mapping[int, Versions] = {}
        settings = ConnectionSettings(client_id=self._client_id, connect_timeout_ms=_CONNECT_MS)
        self._lifecycle, self._forwarding, self._large = (
            Connections(settings, ports, network) for _ in range(3)
        )

    @property
    def is_here(self) -> bool:
        """True if this node's own controller leads."""
        return self._node.is_leader

    @property
    def has_begun(self) -> bool:
        """True if this node has the address of an active controller that takes decisions."""
        return self._node.knows_active_controller

    def serves(self, api_key: ApiKey) -> bool | None:
        """True if the active controller serves a request; None: none was ever reached.

        While none can be reached the last one counts. Controllers of Apache Kafka do not serve
        Tidemark's own requests.
        """
        if self.is_here:
            return api_key in self._here
        with suppress(NotControllerError):
            self._versions = self._lifecycle.to(self._address()).versions or self._versions
        return api_key in self._versions if self._versions else None

    @property
    def epoch(self) -> int:
        """Epoch of the quorum in this node's view; a new one may have another leader."""
        return self._node.describe().epoch

    async def ask(
        self,
        api_key: ApiKey,
        version: int,
        question: Any,
        *,
        timeout_ms: int,
        is_large: bool = False,
    ) -> Any:
        """Ask the present leader; its answer may be NOT_CONTROLLER.

        Args:
            api_key: Of the request.
            version: Of the request.
            question: The request.
            timeout_ms: For its answer.
            is_large: The request may exceed the controller's limit of bytes.

        Raises:
            ApiError: UNSUPPORTED_VERSION: the controller does not serve the request in this
                version; it was not sent.
            NotControllerError: No leader is known, or it cannot be reached; nothing was sent.
            DecisionTimedOut: The request was sent, and there is no answer, so it may have been
                carried out. It is `Unanswered` unless the controller may have ended the connection
                because of a large request.
        """
        if self.is_here:
            return await self._ask_here(api_key, version, question, timeout_ms=timeout_ms)
        host, port = address = self._address()
        epoch = self.epoch
        connections = self._lifecycle if api_key in _LIFECYCLE else self._forwarding
        connections = self._large if is_large else connections
        try:
            return await connections.to(address).request(
                api_key, question, versions=version, timeout_ms=timeout_ms
            )
        except UnsupportedError as error:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the active controller at {host}:{port} does not serve {api_key.name}: it is "
                f"Apache Kafka's, or of another version than this broker ({error})",
            ) from error
        except NotSentError as error:
            raise NotControllerError(
                f"the active controller at {host}:{port} cannot be reached: {error}"
            ) from error
        except NoAnswerError as error:
            text = (
                f"no answer of the active controller at {host}:{port}; the change may be carried "
                "out or not"
            )
            if is_large:
                raise DecisionTimedOut(text) from error
            raise Unanswered(text, epoch) from error

    async def forward(
        self,
        context: RequestContext,
        request: Any,
        *,
        timeout_ms: int,
        applied: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> list[bytes]:
        """Forward a client's request; returns the body of the answer.

        A change is answered when this broker's own image has it and the future of `applied` is
        done, or after `IMAGE_MS`. So the client finds the change here. Controllers of Kafka do not
        send the offset of a change.

        Raises:
            KafkaError: From `ask`; the active controller refused the envelope, or it is larger than
                a controller takes.
        """
        question = await envelope_of(context, request)
        size = envelope_bytes(question)
        if size > self._envelope_bytes_max:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the envelope of this {ApiKey(context.api_key).name} for the active controller "
                f"has {size} bytes, and socket.request.max.bytes={self._envelope_bytes_max} here: "
                "ask for less in one request, or raise it on brokers and controllers",
            )
        asking = self.ask(
            ApiKey.ENVELOPE,
            VERSION,
            question,
            timeout_ms=timeout_ms + _GRACE_MS,
            is_large=size > _LARGE_BYTES,
        )
        envelope = await self._within(timeout_ms + _WAY_MS, asking)
        answer = answer_in(envelope, context)
        if context.api_key != ApiKey.DESCRIBE_QUORUM:
            with suppress(TimeoutError, MetadataUnavailable):
                async with asyncio.timeout(IMAGE_MS / 1_000):
                    await self._node.until_applied(envelope.metadata_end)
                    rest = applied()
                    if rest is not None:
                        await rest
        return [answer]

    async def _within(self, timeout_ms: int, asking: Coroutine[Any, Any, Any]) -> Any:
        """The answer, or an error at the timeout; the connection waits a little longer."""
        asked = asyncio.ensure_future(asking)
        asked.add_done_callback(_seen)
        await wait_for_all({asked}, timeout_ms, self._scheduler)
        if not asked.done():
            raise DecisionTimedOut(
                "no answer of the active controller in time; the change may be carried out or not"
            )
        return asked.result()

    def close(self) -> None:
        """End the connections; requests end without an answer."""
        self._large.close()
        self._lifecycle.close()
        self._forwarding.close()

    async def _ask_here(
        self, api_key: ApiKey, version: int, question: Any, *, timeout_ms: int
    ) -> Any:
        handler = self._here.get(api_key)
        if handler is None:
            raise NotControllerError(f"this node has become the active controller: {api_key.name}")
        context = RequestContext(api_key, version, 0, self._client_id, "", ("", 0), 0)
        answer = handler.handle(context, question)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await answer if isawaitable(answer) else answer
        except TimeoutError as error:
            raise DecisionTimedOut("no answer of this node's own controller") from error

    def _address(self) -> tuple[str, int]:
        view = self._node.describe()
        if view.leader is None or view.leader_id == self._node.node_id:
            raise NotControllerError("no active controller is known")
        return view.leader.host, view.leader.port


def _seen(asked: "asyncio.Task[Any]") -> None:
    """Retrieve the error: after the timeout no caller does."""
    if not asked.cancelled():
        asked.exception()
