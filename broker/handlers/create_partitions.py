"""CreatePartitions (37): more partitions for topics; each topic grows or is refused on its own.

Existing records stay in their partitions; producers distribute later ones over all partitions.

Versions:

* 0: a new total, manual replicas, validate only (KIP-195).
* 1: no new field; the client waits out a throttle, not the broker (KIP-219).
* 2: flexible (KIP-482).
* 3: no new field; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.handlers.create_topics import throttled
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import GUARDED_TOPICS
from broker.topics.creation import TopicCreation
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import OFFSETS_TOPIC
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.errors import PolicyViolationError
from metadata_topic.controller.partitions import GrownTopic
from runtime.work import Pace, Steps, run_in_steps

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = message("CreatePartitionsResponse").cls
_Result: Final = _Response.Results
_SINCE_THROTTLED: Final = 3
_TOPICS_AT_ONCE_MAX: Final = 1_000
_TOPIC_WORK: Final = 2


class CreatePartitionsHandler(DecodedHandler):
    """Serves CreatePartitions on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.CREATE_PARTITIONS
    versions = Versions(0, 3)

    def __init__(self, creation: TopicCreation) -> None:
        self._creation = creation

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Add partitions; answers for each topic once the decision is committed."""
        version = context.api_version
        wanted, refused = await run_in_steps(self._checked(request.topics))
        if not wanted:
            return _Response(results=refused)
        try:
            grown = await self._creation.create_partitions(
                wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
            )
        except KafkaError as error:  # the decision could not be committed
            return _all_failed(refused, wanted, error, version)
        answer = await run_in_steps(_answers(refused, grown))
        if len(answer.results) <= _TOPICS_AT_ONCE_MAX:
            return answer
        return await run_in_steps(response(self.api_key).encode_steps(answer, version))

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error` for each topic: nothing was done."""
        return _all_failed((), request.topics, error, context.api_version)

    answered_in = "results"

    def asked_in(self, _version: int) -> str:
        """Field of the request with the topics."""
        return "topics"

    def guarded(self, topic: Any) -> Any | None:
        """The refusal for a topic whose number of partitions is fixed; None for any other.

        DIFFERS: Kafka allows partitions to be added to its internal topics. The number of
        partitions decides which one has a group's offsets or the metadata of a user partition's
        segments. With another number, both would be looked for in the wrong partition.
        """
        if topic.name != OFFSETS_TOPIC and topic.name not in GUARDED_TOPICS:
            return None
        text = (
            "This topic belongs to the brokers: they find things in it by its number of partitions."
        )
        return _answer(topic.name, PolicyViolationError(text))

    def _checked(self, topics: Iterable[Any]) -> Steps[tuple[list[Any], list[Any]]]:
        """Split into topics for the controller, and refusals of the others."""
        wanted, refused, pace = [], [], Pace()
        for topic in topics:
            answer = self.guarded(topic)
            if answer is None:
                wanted.append(topic)
            else:
                refused.append(answer)
            if pace.is_step_over():
                yield
        return wanted, refused


def _answers(refused: Sequence[Any], grown: Iterable[GrownTopic]) -> Steps[Any]:
    results, pace = [*refused], Pace()
    for topic in grown:
        results.append(_answer(topic.name, topic.error))
        if pace.is_step_over(_TOPIC_WORK):
            yield
    return _Response(results=results)


def _all_failed(
    refused: Sequence[Any], wanted: Iterable[Any], error: KafkaError, version: int
) -> Any:
    error, throttle_ms = throttled(error, knows_it=version >= _SINCE_THROTTLED)
    failed = (_answer(topic.name, error) for topic in wanted)
    return _Response(results=[*refused, *failed], throttle_time_ms=throttle_ms)


def _answer(name: str, error: KafkaError | None) -> Any:
    if error is None:
        return _Result(name=name)
    return _Result(name=name, error_code=error.code, error_message=str(error))


def make(parts: "HandlerParts") -> CreatePartitionsHandler:
    """Make the handler of CreatePartitions."""
    return CreatePartitionsHandler(parts.creation)
