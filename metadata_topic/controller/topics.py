"""Creating topics.

Every topic of a request succeeds or fails on its own; the records of all are one batch. A request
for more than PARTITIONS_PER_REQUEST_MAX partitions fails as a whole, before any are built.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafka_protocol.errors import KafkaError
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    TopicExistsError,
)
from metadata_topic.controller.free_descriptors import DescriptorBudget
from metadata_topic.controller.partitions import check_partition_total, partition_records
from metadata_topic.controller.replica_assignment import replicas_of
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_specs import DEFAULT, NewTopic, TopicDefaults, validate_name
from metadata_topic.image.image import MetadataImage, ResourceType, colliding_topic, metric_name
from metadata_topic.image.records import MetadataRecord, make
from runtime.work import Pace, Steps, stepwise

_TOPIC_WORK: Final = 40
_MIN_ISR: Final = "min.insync.replicas"

ConfigValidator = Callable[[str, dict[str, str]], None]
"""Checks a new topic's overrides; raises KafkaError (INVALID_CONFIG) naming key and value."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """Outcome for one topic of the request.

    Attributes:
        error: None if the topic was created (or could be, with validate_only).
        topic_id: Zero on errors and with validate_only.
        num_partitions, replication_factor: -1 on errors.
        configs: Overrides of the topic; the handler adds the defaults.
    """

    name: str
    error: KafkaError | None = None
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def added(self) -> int:
        """Number of new partitions."""
        return max(self.num_partitions, 0)


@stepwise
def create_topics(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    *,
    defaults: TopicDefaults,
    topic_ids: Sequence[bytes],
    validate_config: ConfigValidator,
    validate_only: bool = False,
    placement_start: int = 0,
    descriptors: DescriptorBudget | None = None,
) -> Steps[ControllerResult[list[CreatedTopic]]]:
    """Create topics, in steps.

    Args:
        image: The cluster now; its brokers are the candidates for replicas.
        topics: The topics of the request; a name that repeats gets an error.
        defaults: Values for -1.
        topic_ids: Fresh random ids, at least one for each entry of `topics`.
        validate_config: Checks overrides, raises KafkaError.
        validate_only: Check and answer, write nothing.
        placement_start: Any number, shifts the first leader, see `placement.place`.
        descriptors: Budget from which the new replicas are taken; None: no bound.

    Returns:
        One CreatedTopic for each distinct name, in the order of the request.
    """
    assert len(topic_ids) >= len(topics)
    counts = Counter(topic.name for topic in topics)
    try:
        _check_partition_total(topics, defaults)
    except PolicyViolationError as error:
        return ControllerResult((), [CreatedTopic(name, error) for name in counts])
    records: list[MetadataRecord] = []
    response: list[CreatedTopic] = []
    accepted: dict[str, str] = {}  # by metric name
    seen: set[str] = set()
    pace = Pace()
    for topic, topic_id in zip(topics, topic_ids, strict=False):
        if topic.name in seen:
            continue
        seen.add(topic.name)
        if pace.is_step_over(_TOPIC_WORK * (1 + len(topic.configs))):
            yield
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            _check_name(image, topic.name, accepted)
            configs = _configs_of(topic)
            # As in Kafka settings are validated first: only valid ones decide where the topic is
            # placed.
            validate_config(topic.name, dict(configs))
            start = placement_start + len(accepted)
            replicas = yield from replicas_of(image, topic, configs, defaults, start)
            if descriptors is not None:
                descriptors.take(replicas)
        except KafkaError as error:
            response.append(CreatedTopic(topic.name, error))
            continue
        accepted[metric_name(topic.name)] = topic.name
        if not validate_only:
            records += yield from _records_of(image, topic.name, topic_id, configs, replicas, pace)
        response.append(
            CreatedTopic(
                topic.name,
                topic_id=ZERO_UUID if validate_only else topic_id,
                num_partitions=len(replicas),
                replication_factor=len(replicas[0]),
                configs=configs,
            )
        )
    return ControllerResult(tuple(records), response)


def _check_partition_total(topics: Sequence[NewTopic], defaults: TopicDefaults) -> None:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == DEFAULT:
            total += defaults.num_partitions
        else:
            total += max(topic.num_partitions, 0)
    check_partition_total(total)


def _check_name(image: MetadataImage, name: str, accepted: Mapping[str, str]) -> None:
    validate_name(name)
    if name in image.topics_by_name:
        raise TopicExistsError(f"Topic '{name}' already exists.")
    other = colliding_topic(image, name) or accepted.get(metric_name(name))
    if other is not None:
        raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")


def _configs_of(topic: NewTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    nulls = [entry.name for entry in topic.configs if entry.value is None]
    if nulls:
        raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
    for entry in topic.configs:
        assert entry.value is not None
        configs[entry.name] = entry.value
    return configs


def _records_of(
    image: MetadataImage,
    name: str,
    topic_id: bytes,
    configs: Mapping[str, str],
    replicas: Sequence[tuple[int, ...]],
    pace: Pace,
) -> Steps[list[MetadataRecord]]:
    records = [make("TopicRecord", name=name, topic_id=topic_id)]
    for key, value in configs.items():
        records.append(
            make(
                "ConfigRecord",
                resource_type=int(ResourceType.TOPIC),
                resource_name=name,
                name=key,
                value=value,
            )
        )
    if _MIN_ISR in configs and image.elr_enabled:
        records.append(make("ClearElrRecord", topic_name=name))
    records += yield from partition_records(image, topic_id, 0, replicas, pace)
    return records
