"""CreateTopics (19): each topic of the request is created or refused on its own.

Versions:

* 2: the lowest that Kafka 4 serves; validate only (KIP-4), throttle time (KIP-124).
* 3: no new field; the client waits out a throttle, not the broker (KIP-219).
* 4: no new field; -1 partitions or replicas stand for the broker's defaults (KIP-464).
* 5: flexible (KIP-482); the answer describes the topic (KIP-525).
* 6: no new field; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599).
* 7: topic ids (KIP-516).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.config.describe import describe_topic
from broker.config.live_config import LiveConfig
from broker.config.topic_config import InvalidConfig, normalise
from broker.network.registry import DecodedHandler, RequestContext
from broker.topics.cluster import GUARDED_TOPICS
from broker.topics.creation import TopicCreation
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.topics import CreatedTopic
from runtime.work import Pace, Steps, run_in_steps

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Response: Final = message("CreateTopicsResponse").cls
_Topic: Final = _Response.Topics
_Config: Final = _Topic.Configs
_AskedConfig: Final = message("CreateTopicsRequest").cls.Topics.Configs

_SINCE_CONFIGS: Final = 5
_SINCE_THROTTLED: Final = 6
_TOPICS_AT_ONCE_MAX: Final = 50
_THROTTLE_MS: Final = 1_000
"""Time that a client waits before its next try while disks are far behind (KIP-599)."""
_TOPIC_WORK: Final = 10
_DESCRIBED_WORK: Final = 500
_OWN_OF_BROKERS: Final = frozenset({REMOTE_LOG_METADATA_TOPIC})


class CreateTopicsHandler(DecodedHandler):
    """Serves CreateTopics on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.CREATE_TOPICS
    versions = Versions(2, 7)

    def __init__(
        self,
        creation: TopicCreation,
        config: LiveConfig,
        *,
        is_own: bool = False,
        brokers_ask: bool = False,
    ) -> None:
        """Serve clients, or with `is_own` the broker in this process.

        Args:
            creation: Creates the topics.
            config: Settings that describe a new topic in the answer.
            is_own: The caller reads only the errors; it may create the remote log metadata topic.
            brokers_ask: On a controllers' listener, whose direct callers are brokers. They may
                create that topic, too; requests of their clients come in an Envelope.
        """
        self._creation, self._config, self._is_own = creation, config, is_own
        self._brokers_ask = is_own or brokers_ask

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Create topics; answers for each once it is committed."""
        version = context.api_version
        asks_itself = self._brokers_ask and not context.is_forwarded
        guarded = GUARDED_TOPICS - _OWN_OF_BROKERS if asks_itself else GUARDED_TOPICS
        wanted, refused = await run_in_steps(_checked(request.topics, guarded))
        if not wanted:
            return _Response(topics=refused)
        try:
            created = await self._creation.create(
                wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
            )
        except KafkaError as error:  # the decision could not be committed
            return _all_failed(refused, wanted, error, version)
        answer = await run_in_steps(self._answer(refused, created, version))
        if self._is_own or len(answer.topics) <= _TOPICS_AT_ONCE_MAX:
            return answer
        return await run_in_steps(response(ApiKey.CREATE_TOPICS).encode_steps(answer, version))

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """Answer with `error` for each topic: nothing was done."""
        return _all_failed((), request.topics, error, context.api_version)

    answered_in = "topics"

    def asked_in(self, _version: int) -> str:
        """Field of the request with the topics."""
        return "topics"

    def guarded(self, topic: Any) -> Any | None:
        """The refusal for a topic that only brokers create; None for any other."""
        error = _guarded(topic, GUARDED_TOPICS)
        return None if error is None else _failed(topic.name, error)

    def _answer(
        self, refused: Sequence[Any], created: Iterable[CreatedTopic], version: int
    ) -> Steps[Any]:
        described: dict[frozenset[tuple[str, str]], list[Any]] = {}
        answers, pace = [*refused], Pace()
        for topic in created:
            if topic.error is not None:
                answers.append(_failed(topic.name, topic.error))
                continue
            answer, work = _created(topic), _TOPIC_WORK
            if version >= _SINCE_CONFIGS and not self._is_own:
                # Topics of one request mostly have the same settings.
                overrides = frozenset(topic.configs.items())
                if overrides not in described:
                    described[overrides] = self._configs(topic)
                    work += _DESCRIBED_WORK
                answer.configs = described[overrides]
            answers.append(answer)
            if pace.is_step_over(work):
                yield
        return _Response(topics=answers)

    def _configs(self, topic: CreatedTopic) -> list[Any]:
        entries = describe_topic(self._config.current, topic.configs)
        return [
            _Config(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in sorted(entries, key=lambda entry: entry.name)
        ]


class GuardedTopic(KafkaError):
    """Only brokers may create this topic.

    DIFFERS: Kafka answers INVALID_REQUEST for `__cluster_metadata` (KIP-630 promises 44). It allows
    any client to create `__remote_log_metadata`, whose settings tiering depends on.
    """

    code = ErrorCode.POLICY_VIOLATION


def _checked(topics: Iterable[Any], guarded: Collection[str]) -> Steps[tuple[list[Any], list[Any]]]:
    """Split into topics for the controller, and refusals of the others."""
    wanted, refused, pace = [], [], Pace()
    for topic in topics:
        error = _refusal(topic, guarded)
        if error is None:
            wanted.append(topic)
        else:
            refused.append(_failed(topic.name, error))
        if pace.is_step_over(_TOPIC_WORK):
            yield
    return wanted, refused


def _created(topic: CreatedTopic) -> Any:
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
    )


def _guarded(topic: Any, guarded: Collection[str]) -> GuardedTopic | None:
    if topic.name not in guarded:
        return None
    return GuardedTopic(f"Creation of internal topic {topic.name} is prohibited.")


def _refusal(topic: Any, guarded: Collection[str]) -> KafkaError | None:
    """The error of a topic that need not go to the controller.

    Also replaces old names of settings in `topic`.
    """
    if (error := _guarded(topic, guarded)) is not None:
        return error
    try:
        configs = normalise({config.name: config.value for config in topic.configs})
    except InvalidConfig as error:
        return error
    topic.configs = [_AskedConfig(name=name, value=value) for name, value in configs.items()]
    return None


def _failed(name: str, error: KafkaError) -> Any:
    return _Topic(name=name, error_code=error.code, error_message=str(error))


def _all_failed(
    refused: Sequence[Any], wanted: Sequence[Any], error: KafkaError, version: int
) -> Any:
    error, throttle_ms = throttled(error, knows_it=version >= _SINCE_THROTTLED)
    answers = [*refused, *(_failed(topic.name, error) for topic in wanted)]
    return _Response(topics=answers, throttle_time_ms=throttle_ms)


def throttled(error: KafkaError, *, knows_it: bool) -> tuple[KafkaError, int]:
    """The error in a form that the client knows, and how many milliseconds it shall wait.

    DIFFERS: Kafka creates the topics for clients that do not know THROTTLING_QUOTA_EXCEEDED. Here
    they get REQUEST_TIMED_OUT, and try again.
    """
    if error.code != ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return error, 0
    return error if knows_it else ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error)), _THROTTLE_MS


def make(parts: "HandlerParts") -> CreateTopicsHandler:
    """Make the handler of CreateTopics."""
    return CreateTopicsHandler(parts.creation, parts.live)
