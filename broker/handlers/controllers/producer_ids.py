"""AllocateProducerIds (67): a broker takes a block of ids for idempotent producers.

Versions:

* 0: KIP-730; flexible from the start.

A tagged field of Tidemark has the highest producer id in the broker's logs.
"""

from functools import partial
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.producer_ids import ProducerIdBlock, allocate_producer_ids

_Response: Final = response(ApiKey.ALLOCATE_PRODUCER_IDS).cls


class AllocateProducerIdsHandler(DecodedHandler):
    """Answers AllocateProducerIds on a controllers' listener."""

    api_key = ApiKey.ALLOCATE_PRODUCER_IDS
    versions = Versions(0, 0)

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Allocate the next block; no other broker ever gets its ids."""
        decide = partial(
            allocate_producer_ids,
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            used=request.used_producer_id,
        )
        try:
            block: ProducerIdBlock = await self._submit(decide)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "allocate producer ids")))
        return _Response(producer_id_start=block.first_id, producer_id_len=block.size)
