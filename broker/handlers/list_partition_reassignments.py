"""ListPartitionReassignments (46): the ongoing reassignments of partitions.

Versions:

* 0: KIP-455; flexible from the start.

With an authorizer it would need Describe on the cluster.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.reassignment import OngoingReassignment, list_reassignments
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from runtime.work import Pace, Steps, run_in_steps

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = response(ApiKey.LIST_PARTITION_REASSIGNMENTS).cls
_Topic: Final = _Response.Topics
_Partition: Final = _Topic.Partitions
_PARTITION_WORK: Final = 5


class ListPartitionReassignmentsHandler(DecodedHandler):
    """Serves ListPartitionReassignments on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    versions = Versions(0, 0)

    def __init__(self, submit: Submit) -> None:
        """`submit` gives access to the committed state of the active controller."""
        self._submit = submit

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """List the ongoing reassignments of the named partitions, or all."""
        topics = request.topics
        asked = None if topics is None else [(one.name, one.partition_indexes) for one in topics]

        def look(image: MetadataImage) -> Steps[ControllerResult[list[OngoingReassignment]]]:
            return ControllerResult((), (yield from list_reassignments(image, asked)))

        try:
            found: list[OngoingReassignment] = await self._submit(
                look, timeout_ms=request.timeout_ms
            )
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _refused(error)
        return await run_in_steps(_answer(found))

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error` for the whole request."""
        del context, request
        return _refused(error)


def _answer(found: Sequence[OngoingReassignment]) -> Steps[Any]:
    topics: list[Any] = []
    pace = Pace()
    for topic, index, image in found:
        if not topics or topics[-1].name != topic:
            topics.append(_Topic(name=topic))
        topics[-1].partitions.append(
            _Partition(
                partition_index=index,
                replicas=list(image.replicas),
                adding_replicas=list(image.adding),
                removing_replicas=list(image.removing),
            )
        )
        if pace.is_step_over(_PARTITION_WORK):
            yield
    return _Response(topics=topics)


def _refused(error: Exception) -> Any:
    code = int(code_of(error, "list reassignments"))
    return _Response(error_code=code, error_message=message_of(error))


def make(parts: "HandlerParts") -> ListPartitionReassignmentsHandler:
    """Make the handler of ListPartitionReassignments."""
    return ListPartitionReassignmentsHandler(parts.node.submit)
