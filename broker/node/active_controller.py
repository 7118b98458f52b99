"""The way of a broker to the active controller, which may be in another process.

Which node that is, this node's replica of the metadata log knows. Its controllers' listener takes
the request as it is: without an authorizer there is nobody to speak for, so no Envelope is needed.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from inspect import isawaitable
from typing import Any, Final, Protocol

from broker.network.registry import DecodedHandler, RequestContext
from broker.node.one_request import NO_ANSWER, Conversation
from broker.topics.forwarded_creation import VERSION, AskThere
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.quorum.active.deadlines import DecisionTimedOut
from metadata_topic.quorum.view import QuorumView
from runtime.executors import Pool

_CONNECT_S: Final = 2.0


class KnownQuorum(Protocol):
    """What this node's replica of the metadata log knows of the quorum."""

    @property
    def node_id(self) -> int:
        """This node."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        ...

    @property
    def knows_active_controller(self) -> bool:
        """Whether the leader surely takes decisions."""
        ...

    def describe(self) -> QuorumView:
        """The quorum as this node sees it."""
        ...


class ActiveController:
    """See the module."""

    def __init__(
        self, node: KnownQuorum, here: Mapping[ApiKey, DecodedHandler], pool: Pool
    ) -> None:
        """Nothing is asked yet.

        Args:
            node: knows who leads.
            here: take requests while this node's own controller leads: no connection speaks for the
                broker in its process.
            pool: looks names up.
        """
        self._node, self._here, self._pool = node, here, pool
        self._client_id = f"broker-{node.node_id}-to-controller".encode()

    @property
    def is_here(self) -> bool:
        """Whether this node's own controller leads."""
        return self._node.is_leader

    @property
    def has_begun(self) -> bool:
        """Whether a request would be decided now, as far as this node knows."""
        return self._node.knows_active_controller

    async def ask(self, api_key: ApiKey, version: int, question: Any, *, timeout_ms: int) -> Any:
        """Ask whoever leads now; its answer may be that it does not any more.

        Raises:
            NotControllerError: nobody leads as far as is known, or it cannot be reached; it was
                not asked.
            DecisionTimedOut: it was asked, and there is no answer: what was asked for may be done.
        """
        if self.is_here:
            return await self._ask_here(api_key, version, question, timeout_ms=timeout_ms)
        address = self._address()
        talk = Conversation(address, self._client_id, self._pool)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await talk.__aenter__()
        except (OSError, TimeoutError) as error:
            raise NotControllerError(
                f"the active controller at {address[0]}:{address[1]} cannot be reached: {error}"
            ) from error
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await talk.ask(api_key, version, question)
        except NO_ANSWER as error:
            raise DecisionTimedOut(
                f"no answer of the active controller at {address[0]}:{address[1]}; the change may "
                "be carried out or not"
            ) from error
        finally:
            await talk.__aexit__()

    async def _ask_here(
        self, api_key: ApiKey, version: int, question: Any, *, timeout_ms: int
    ) -> Any:
        handler = self._here.get(api_key)
        if handler is None:
            raise NotControllerError(f"this node has become the active controller: {api_key.name}")
        context = RequestContext(api_key, version, 0, self._client_id.decode(), "", ("", 0), 0)
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


def create_there(active: ActiveController) -> AskThere:
    """How `ForwardedCreation` gets to the active controller."""

    def ask(question: Any, timeout_ms: int) -> Awaitable[Any] | None:
        if active.is_here:
            return None
        return active.ask(ApiKey.CREATE_TOPICS, VERSION, question, timeout_ms=timeout_ms)

    return ask
