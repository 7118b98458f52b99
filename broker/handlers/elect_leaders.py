"""ElectLeaders (43): elects preferred leaders, or unclean ones.

Versions:

* 0: preferred leaders alone.
* 1: unclean elections (KIP-460), and an error of the whole request.
* 2: flexible (KIP-482).
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.handlers.errors_out import code_of, message_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.creation import Submit
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.elections import ElectedTopic, elect_leaders
from runtime.work import Pace, Steps, run_in_steps

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = response(ApiKey.ELECT_LEADERS).cls
_Topic: Final = _Response.ReplicaElectionResults
_Partition: Final = _Topic.PartitionResult
_PARTITION_WORK: Final = 5


class ElectLeadersHandler(DecodedHandler):
    """Serves ElectLeaders on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.ELECT_LEADERS
    versions = Versions(0, 2)

    def __init__(self, submit: Submit, defaults: ElectionRules) -> None:
        """`defaults` are the election rules in the controller's properties."""
        self._submit, self._defaults = submit, defaults

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Elect in one decision; answers for each partition once it is committed."""
        topics = request.topic_partitions
        decide = partial(
            elect_leaders.steps,
            election_type=request.election_type,
            asked=None if topics is None else [(one.topic, one.partitions) for one in topics],
            defaults=self._defaults,
        )
        try:
            elected: list[ElectedTopic] = await self._submit(decide, timeout_ms=request.timeout_ms)
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _refused(request, int(code_of(error, "elect leaders")), message_of(error))
        return await run_in_steps(_answer(elected))

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error` for each partition: nothing was done."""
        del context
        return _refused(request, int(code_of(error, "elect leaders")), message_of(error))


def _answer(elected: list[ElectedTopic]) -> Steps[Any]:
    results: list[Any] = []
    pace = Pace()
    for topic in elected:
        partitions: list[Any] = []
        for index, error in topic.partitions:
            code = ErrorCode.NONE if error is None else error.code
            text = None if error is None else str(error)
            partitions.append(
                _Partition(partition_id=index, error_code=int(code), error_message=text)
            )
            if pace.is_step_over(_PARTITION_WORK):
                yield
        results.append(_Topic(topic=topic.name, partition_result=partitions))
    return _Response(replica_election_results=results)


def _refused(request: Any, code: int, text: str | None) -> Any:
    """Set an error of the whole request on each partition, as Kafka does.

    Version 0 has no field for the whole.
    """
    results = [
        _Topic(
            topic=topic.topic,
            partition_result=[
                _Partition(partition_id=index, error_code=code, error_message=text)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return _Response(error_code=code, replica_election_results=results)


def make(parts: "HandlerParts") -> ElectLeadersHandler:
    """Make the handler of ElectLeaders."""
    return ElectLeadersHandler(parts.node.submit, parts.node.brokers.election_defaults)
