"""InitProducerId (22): ids for idempotent producers.

Ids come from blocks of the controller, one block at a time. Concurrent requests that find the block
used up share one request to the controller. An id is never given twice, even after a restart: the
rest of a block is lost then.

Transactions are not served yet: a request with a transactional id is refused.

Versions:

* 0: an id for a producer (KIP-98).
* 1: no new field; the client waits out a throttle, not the broker (KIP-219).
* 2: flexible (KIP-482).
* 3: the producer's id and epoch so far (KIP-360).
* 4: no new field; PRODUCER_FENCED may be answered (KIP-588).
* 5: no new field; TRANSACTION_ABORTABLE may be answered (KIP-890).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.handlers.parts import TRANSACTIONS, HandlerParts, Unserved
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.INIT_PRODUCER_ID).cls

AllocateBlock = Callable[[], Awaitable[tuple[int, int]]]
"""Requests a block from the controller: (first id, end id), end exclusive."""


class ProducerIds:
    """Assigns the ids of one block after the other."""

    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._next = self._end = 0
        self._asking: asyncio.Lock | None = None

    def try_next(self) -> int | None:
        """The next id of the current block; None: it is used up."""
        if self._next >= self._end:
            return None
        given = self._next
        self._next += 1
        return given

    async def next(self) -> int:
        """The next id; requests a new block if the current one is used up."""
        if self._asking is None:
            self._asking = asyncio.Lock()
        async with self._asking:
            while (given := self.try_next()) is None:
                self._next, self._end = await self._allocate()
        return given


class InitProducerIdHandler(DecodedHandler):
    """Serves InitProducerId 0-5 of idempotent producers."""

    api_key = ApiKey.INIT_PRODUCER_ID
    versions = Versions(0, 5)

    def __init__(self, allocate: AllocateBlock, unserved: Unserved) -> None:
        self._ids, self._unserved = ProducerIds(allocate), unserved

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Assign an id; returns an awaitable only when a block is used up."""
        error = _why_refused(request)
        if error is not None:
            if request.transactional_id:
                self._unserved.refused(context, *TRANSACTIONS)
            return _failed(error)
        given = self._ids.try_next()
        if given is not None:
            return _Response(producer_id=given, producer_epoch=0)
        return self._later()

    async def _later(self) -> Any:
        try:
            given = await self._ids.next()
        except KafkaError as error:
            code = code_of(error, "allocate producer ids")
            # Clients treat -1 as fatal, but the lack of an id is transient.
            return _failed(code if code.retriable else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return _Response(producer_id=given, producer_epoch=0)


def _why_refused(request: Any) -> ErrorCode | None:
    if request.transactional_id is not None:
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return ErrorCode.INVALID_REQUEST
    return None


def _failed(code: ErrorCode) -> Any:
    return _Response(error_code=int(code), producer_id=-1, producer_epoch=-1)


def _block_allocator(parts: HandlerParts) -> AllocateBlock:
    """Returns a function that requests producer ids under this broker's registration."""
    used: int | None = None  # highest id in local logs; later ids are in the metadata

    async def allocate() -> tuple[int, int]:
        nonlocal used
        if used is None:
            used = max((log.producers.states.highest_id for log in parts.logs.all()), default=-1)
        return await parts.registration.producer_ids(used)

    return allocate


def make(parts: HandlerParts) -> InitProducerIdHandler:
    """Make the handler of InitProducerId."""
    return InitProducerIdHandler(_block_allocator(parts), parts.unserved)
