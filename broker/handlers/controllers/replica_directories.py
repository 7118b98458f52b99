"""AssignReplicasToDirs (73): a broker says in which log directories it has made replicas.

Versions:

* 0: KIP-858; flexible from the start.
"""

from collections.abc import Mapping
from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.directories import ReplicaId, assign_directories
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from runtime.work import Steps

_Response: Final = response(ApiKey.ASSIGN_REPLICAS_TO_DIRS).cls
_Directory: Final = _Response.Directories
_Topic: Final = _Directory.Topics
_Partition: Final = _Topic.Partitions


class AssignReplicasToDirsHandler(DecodedHandler):
    """Answers AssignReplicasToDirs on a controllers' listener."""

    api_key = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    versions = Versions(0, 0)

    def __init__(self, submit: Submit, defaults: ElectionRules) -> None:
        """Decide by `submit`; `defaults`: what the controller's properties say of elections."""
        self._submit, self._defaults = submit, defaults

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Note the directories in one decision; answer for each partition."""
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
        except Exception as error:  # noqa: BLE001  (told as a code)
            return _Response(error_code=int(code_of(error, "assign replicas to directories")))
        return _Response(
            directories=[_answer(directory, gone) for directory in request.directories]
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
