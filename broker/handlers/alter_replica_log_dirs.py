"""AlterReplicaLogDirs (34): moves replicas to other log directories of this broker.

The answer leaves when the moves have begun (`broker.replica.directory_moves`); DescribeLogDirs
shows their progress. A replica that does not exist yet gets REPLICA_NOT_AVAILABLE, and is created
in that directory later.

Versions:

* 1: the lowest that Kafka 4 serves (KIP-113).
* 2: flexible (KIP-482).
"""

import asyncio
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from broker.replica.directory_moves import DirectoryMoves
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions

_Response: Final = response(ApiKey.ALTER_REPLICA_LOG_DIRS).cls
_Result: Final = _Response.Results


class AlterReplicaLogDirsHandler(DecodedHandler):
    """Serves AlterReplicaLogDirs 1-2."""

    api_key = ApiKey.ALTER_REPLICA_LOG_DIRS
    versions = Versions(1, 2)

    def __init__(self, moves: DirectoryMoves) -> None:
        self._moves = moves

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Begin the moves; if a partition is named with two directories, the last one counts."""
        asked = {
            TopicPartition(topic.name, index): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
        codes: dict[str, dict[int, ErrorCode]] = {}
        for tp, path in asked.items():
            codes.setdefault(tp.topic, {})[tp.partition] = await self._begun(tp, path)
            await asyncio.sleep(0)
        return _Response(
            results=[
                _Result(
                    topic_name=topic,
                    partitions=[
                        _Result.Partitions(partition_index=index, error_code=int(code))
                        for index, code in of_topic.items()
                    ],
                )
                for topic, of_topic in codes.items()
            ]
        )

    async def _begun(self, tp: TopicPartition, path: str) -> ErrorCode:
        try:
            await self._moves.alter(tp, path)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return code_of(error, "alter log directories")
        return ErrorCode.NONE


def make(parts: HandlerParts) -> AlterReplicaLogDirsHandler:
    """Make the handler of AlterReplicaLogDirs."""
    return AlterReplicaLogDirsHandler(parts.moves)
