"""Serves `tidemark remote restore-partition` on a leader whose local log is lost.

The tool sends a DeleteRecords request with a tagged field of Tidemark, and offset 0: Kafka's
brokers skip the field, and so delete nothing. RestoreEnd 0 asks for the offset at which new records
would begin. A request with that offset, or a higher one, orders the restoration. The handler behind
serves all other requests.
"""

import asyncio
import logging
from inspect import isawaitable
from typing import Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from broker.replication.restoring import PartitionRestoring
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from local_log.config import LONG_MAX
from local_log.errors import OffsetOutOfRange

log = logging.getLogger(__name__)

_Response: Final = response(ApiKey.DELETE_RECORDS).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions

ASK: Final = 0
_NOTHING: Final = -1


class RestoredPartitions(DecodedHandler):
    """Serves orders to restore; passes all other requests on."""

    def __init__(self, there: DecodedHandler, restoring: PartitionRestoring) -> None:
        """`there` serves all other requests."""
        self.api_key, self.versions = there.api_key, there.versions
        self._there, self._restoring = there, restoring

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve a request; one with an order must hold only orders."""
        is_order = any(
            asked.restore_end != _NOTHING for topic in request.topics for asked in topic.partitions
        )
        if not is_order:
            answer = self._there.handle(context, request)
            return await answer if isawaitable(answer) else answer
        topics = []
        for topic in request.topics:
            answers = [
                await self._take(topic.name, asked, request.timeout_ms)
                for asked in topic.partitions
            ]
            topics.append(_Topic(name=topic.name, partitions=answers))
        return _Response(topics=topics)

    async def _take(self, topic: str, asked: Any, timeout_ms: int) -> Any:
        answer = _Partition(partition_index=asked.partition_index, low_watermark=-1)
        try:
            await asyncio.wait_for(
                self._carry_out(topic, asked, answer), max(timeout_ms, 0) / 1_000
            )
        except TimeoutError:
            answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        except KafkaError as error:
            log.warning(
                "not restored: partition=%s-%d reason=%s", topic, asked.partition_index, error
            )
            answer.error_code = int(error.code)
        return answer

    async def _carry_out(self, topic: str, asked: Any, answer: Any) -> None:
        if asked.restore_end == _NOTHING:
            raise ApiError(ErrorCode.INVALID_REQUEST, "records are not deleted beside an order")
        partition, found = self._restoring.found(topic, asked.partition_index)
        end = found.end if asked.restore_end == ASK else asked.restore_end
        if end < found.end:
            raise OffsetOutOfRange(asked=end, start=found.end, end=LONG_MAX)
        local_end = partition.log.log_end_offset
        if asked.restore_end != ASK:
            await self._restoring.restore(partition, found, end)
        answer.remote_end, answer.local_end, answer.low_watermark = found.begin, local_end, end
