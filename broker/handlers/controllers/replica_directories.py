"""AssignReplicasToDirs (73): assigns a broker's replicas to its log directories.

Versions:

* 0: KIP-858; flexible from the start.

A tagged field of Tidemark gives up one directory, see `forget_directory`. Controllers that do not
have the field change nothing, and their answer has no replica.
"""

from collections.abc import Mapping
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.broker_sessions import check_broker_epoch
from metadata_topic.controller.directories import (
    Forgotten,
    ReplicaId,
    assign_directories,
    forget_directory,
)
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import DIRECTORY_LOST
from runtime.work import Steps

_Response: Final = response(ApiKey.ASSIGN_REPLICAS_TO_DIRS).cls
_Directory: Final = _Response.Directories
_Topic: Final = _Directory.Topics
_Partition: Final = _Topic.Partitions
FORGETS: Final = 1
"""Give up the directory of the request; partitions without another copy stay lost."""
FORGETS_LAST_COPIES: Final = 2
"""Give it up, and create partitions without another copy again, empty."""


class AssignReplicasToDirsHandler(DecodedHandler):
    """Answers AssignReplicasToDirs on a controllers' listener."""

    api_key = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    versions = Versions(0, 0)

    def __init__(self, submit: Submit, defaults: ElectionRules) -> None:
        """`defaults` are the election rules in the controller's properties."""
        self._submit, self._defaults = submit, defaults

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Store the directories in one decision; each partition gets its own error."""
        if request.forgets:
            return await self._forget(request)
        asked = _asked(request)

        def decide(image: MetadataImage) -> Steps[ControllerResult[set[ReplicaId]]]:
            result = yield from assign_directories.steps(
                image,
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                assignments=asked,
                defaults=self._defaults,
            )
            return ControllerResult(result.records, {one for one in asked if _is_gone(image, one)})

        try:
            gone = await self._submit(decide)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "assign replicas to directories")))
        return _Response(
            directories=[_answer(directory, gone) for directory in request.directories]
        )

    async def _forget(self, request: Any) -> Any:
        """Give up one directory; answers with its replicas, then with those that stay lost."""
        if len(request.directories) != 1 or request.forgets not in {FORGETS, FORGETS_LAST_COPIES}:
            return _Response(error_code=int(ErrorCode.INVALID_REQUEST))
        directory_id = request.directories[0].id

        def decide(image: MetadataImage) -> Steps[ControllerResult[Any]]:
            broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
            if not broker.fenced and broker.works_with(directory_id):
                raise ApiError(ErrorCode.INVALID_REQUEST, "the broker serves from that directory")
            result = yield from forget_directory.steps(
                image,
                request.broker_id,
                directory_id,
                working=(),
                begins_last_copies=request.forgets == FORGETS_LAST_COPIES,
                defaults=self._defaults,
            )
            answer = _forgotten(image, directory_id, result.response)
            return ControllerResult(result.records, answer)

        try:
            return await self._submit(decide)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "forget a log directory")))


def _forgotten(image: MetadataImage, directory_id: bytes, forgotten: Forgotten) -> Any:
    return _Response(
        directories=[
            _Directory(
                id=one,
                topics=[
                    _Topic(
                        topic_id=image.topics_by_name[topic].id,
                        partitions=[_Partition(partition_index=partition)],
                    )
                    for topic, partition in replicas
                ],
            )
            for one, replicas in (
                (directory_id, forgotten.replicas),
                (DIRECTORY_LOST, forgotten.leaderless),
            )
        ]
    )


def _asked(request: Any) -> Mapping[ReplicaId, bytes]:
    return {
        ReplicaId(topic.topic_id, partition.partition_index): directory.id
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }


def _is_gone(image: MetadataImage, replica: ReplicaId) -> bool:
    topic = image.topics_by_id.get(replica.topic_id)
    return topic is None or replica.partition not in topic.partitions


def _answer(directory: Any, gone: set[ReplicaId]) -> Any:
    return _Directory(
        id=directory.id,
        topics=[
            _Topic(
                topic_id=topic.topic_id,
                partitions=[
                    _Partition(
                        partition_index=one.partition_index,
                        error_code=int(
                            ErrorCode.UNKNOWN_TOPIC_ID
                            if ReplicaId(topic.topic_id, one.partition_index) in gone
                            else ErrorCode.NONE
                        ),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in directory.topics
        ],
    )
