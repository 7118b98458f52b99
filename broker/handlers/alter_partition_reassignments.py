"""AlterPartitionReassignments (45): moves partitions to other replicas, or cancels a move.

Versions:

* 0: KIP-455; flexible from the start.
* 1: whether the number of replicas may change (KIP-860).

With an authorizer it would need Alter on the cluster.
"""

from typing import TYPE_CHECKING, Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import TopicCreation
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.reassignment import Reassignment
from runtime.work import Pace, Steps, run_in_steps

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = response(ApiKey.ALTER_PARTITION_REASSIGNMENTS).cls
_Topic: Final = _Response.Responses
_Partition: Final = _Topic.Partitions
_PARTITION_WORK: Final = 5


class AlterPartitionReassignmentsHandler(DecodedHandler):
    """Serves AlterPartitionReassignments on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    versions = Versions(0, 1)

    def __init__(self, creation: TopicCreation, defaults: ElectionRules) -> None:
        """`defaults` are the election rules in the controller's properties."""
        self._creation, self._defaults = creation, defaults

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Decide on all partitions at once; answers once the decision is committed."""
        try:
            errors = await self._creation.alter_reassignments(
                await run_in_steps(_asked(request)),
                allows_other_factor=request.allow_replication_factor_change,
                defaults=self._defaults,
                timeout_ms=request.timeout_ms,
            )
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _refused(request, error)
        return await run_in_steps(_answer(request, errors))

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error` for each partition: nothing was done."""
        del context
        return _refused(request, error)


def _asked(request: Any) -> Steps[list[Reassignment]]:
    asked: list[Reassignment] = []
    pace = Pace()
    for topic in request.topics:
        for one in topic.partitions:
            replicas = None if one.replicas is None else tuple(one.replicas)
            asked.append(Reassignment(topic.name, one.partition_index, replicas))
            if pace.is_step_over(_PARTITION_WORK):
                yield
    return asked


def _answer(request: Any, errors: list[KafkaError | None]) -> Steps[Any]:
    topics: list[Any] = []
    remaining = iter(errors)
    pace = Pace()
    for topic in request.topics:
        partitions: list[Any] = []
        for one in topic.partitions:
            error = next(remaining)
            code = ErrorCode.NONE if error is None else error.code
            text = None if error is None else str(error)
            partitions.append(_partition(one, int(code), text))
            if pace.is_step_over(_PARTITION_WORK):
                yield
        topics.append(_Topic(name=topic.name, partitions=partitions))
    allows = request.allow_replication_factor_change
    return _Response(responses=topics, allow_replication_factor_change=allows)


def _refused(request: Any, error: Exception) -> Any:
    """Set an error of the whole request on each partition too, as Kafka does."""
    code, text = int(code_of(error, "alter reassignments")), message_of(error)
    topics = [
        _Topic(
            name=topic.name, partitions=[_partition(one, code, text) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return _Response(error_code=code, error_message=text, responses=topics)


def _partition(asked: Any, code: int, text: str | None) -> Any:
    return _Partition(partition_index=asked.partition_index, error_code=code, error_message=text)


def make(parts: "HandlerParts") -> AlterPartitionReassignmentsHandler:
    """Make the handler of AlterPartitionReassignments."""
    defaults = parts.node.brokers.election_defaults
    return AlterPartitionReassignmentsHandler(parts.creation, defaults)
