"""Changing configs of topics and brokers: key by key (KIP-339), or all of a resource at once.

Each resource succeeds or fails on its own. The broker validates values (`ConfigRules`); this module
decides the effect of SET, DELETE, APPEND and SUBTRACT.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from kafka_protocol.errors import KafkaError
from metadata_topic.controller.election_rules import MIN_ISR, number_in
from metadata_topic.controller.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigError,
    InvalidRequestError,
    UnknownTopicError,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.tiered_placement import check_switched_on
from metadata_topic.controller.topic_specs import validate_name
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import TopicImage
from metadata_topic.image.records import MetadataRecord, make, partition_record_version
from runtime.work import Pace, Steps, stepwise

VALUE_BYTES_MAX: Final = 32_767
"""Longest value, in bytes of UTF-8; records could hold more, but no reader takes more."""

_CHANGE_WORK: Final = 40
_SHOWN_CHARS_MAX: Final = 249


class Operation(IntEnum):
    """Operation on a key; numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigRules(Protocol):
    """The broker's rules about config keys."""

    def is_list(self, resource_type: int, key: str) -> bool:
        """True if the value is a list, so that APPEND and SUBTRACT make sense."""

    def default_of(self, resource_type: int, key: str) -> str | None:
        """The value that APPEND and SUBTRACT start from where nothing is set."""

    def validate(
        self, resource_type: int, name: str, new: dict[str, str], existing: Mapping[str, str]
    ) -> None:
        """Check the overrides a resource would have; raise KafkaError if they are not allowed."""


class ConfigChange(Protocol):
    """One change, as in the request."""

    @property
    def name(self) -> str:
        """The key."""

    @property
    def config_operation(self) -> int:
        """An `Operation`."""

    @property
    def value(self) -> str | None:
        """None only for DELETE."""


class ResourceChange(Protocol):
    """Changes of one resource, as in the request."""

    @property
    def resource_type(self) -> int:
        """A `ResourceType`."""

    @property
    def resource_name(self) -> str:
        """Topic name, broker id in decimal, or empty for all brokers."""

    @property
    def configs(self) -> Sequence[ConfigChange]:
        """Changes in the order of the request."""


@dataclass(frozen=True, slots=True)
class AlteredResource:
    """Outcome for one resource; `error` is None if its changes are written."""

    resource_type: int
    resource_name: str
    error: KafkaError | None = None


@stepwise
def incremental_alter_configs(
    image: MetadataImage,
    resources: Sequence[ResourceChange],
    *,
    rules: ConfigRules,
    replaces: bool = False,
    validate_only: bool = False,
) -> Steps[ControllerResult[list[AlteredResource]]]:
    """Change configs, in steps.

    Args:
        image: The cluster now.
        resources: Topics, brokers (named by id) and the cluster-wide default (a broker named "").
        rules: Of the broker, for its own keys.
        replaces: Also delete overrides that the request does not name (the old API AlterConfigs).
        validate_only: Check and answer, write nothing.

    Returns:
        One AlteredResource for each distinct resource, in the order of the request.
    """
    counts = Counter((r.resource_type, r.resource_name) for r in resources)
    records: list[MetadataRecord] = []
    response: list[AlteredResource] = []
    minimums: dict[str, str | None] = {}
    pace = Pace()
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        if pace.is_step_over(_CHANGE_WORK * (1 + len(resource.configs))):
            yield
        if counts[key] == 0:
            continue  # a repetition that was answered already
        try:
            if counts[key] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            changes = yield from _changes_of(image, resource, rules, replaces=replaces)
        except KafkaError as error:
            response.append(AlteredResource(*key, error))
        else:
            records += _records_of(image, resource, changes, minimums)
            response.append(AlteredResource(*key))
        counts[key] = 0
    return ControllerResult(() if validate_only else tuple(records), response)


def _changes_of(
    image: MetadataImage, resource: ResourceChange, rules: ConfigRules, *, replaces: bool
) -> Steps[dict[str, str | None]]:
    """Return the new value of each changed key, None to remove it; checked as a whole."""
    kind, name = resource.resource_type, resource.resource_name
    _check_resource(image, kind, name)
    names = Counter(change.name for change in resource.configs)
    if any(count > 1 for count in names.values()):
        raise InvalidRequestError("Error due to duplicate config keys")
    nulls = [
        change.name
        for change in resource.configs
        if change.value is None and change.config_operation != Operation.DELETE
    ]
    if nulls:
        raise InvalidRequestError(f"Null value not supported for : {_shown(','.join(nulls))}")
    existing = image.configs.get((kind, name), {})
    changes: dict[str, str | None] = dict.fromkeys(existing) if replaces else {}
    for change in resource.configs:
        changes[change.name] = _new_value(kind, change, existing, rules)
    after = dict(existing)
    for key, value in changes.items():
        _check_size(key, value)
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    if image.elr_enabled and kind == ResourceType.BROKER and MIN_ISR in changes:
        _check_min_isr(name, changes[MIN_ISR])
    rules.validate(kind, name, after, existing)
    if kind == ResourceType.TOPIC:
        yield from check_switched_on(image, name, existing, after)
    return changes


def _check_min_isr(broker: str, value: str | None) -> None:
    """Refuse changes that would give parts of the cluster another minimum: ELR depends on one."""
    if broker:
        raise InvalidConfigError(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    if value is None:
        raise InvalidConfigError(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")


def _check_size(key: str, value: str | None) -> None:
    # Four bytes are the most that a character takes, so short values need not be encoded.
    if value is None or 4 * len(value) <= VALUE_BYTES_MAX:
        return
    size_bytes = len(value.encode(errors="surrogatepass"))
    if size_bytes > VALUE_BYTES_MAX:
        raise InvalidConfigError(
            f"The value of {_shown(key)} cannot be set: it would have {size_bytes} bytes, "
            f"allowed are {VALUE_BYTES_MAX}."
        )


def _shown(name: str) -> str:
    """Shorten a name for an error message: the whole of a long one may not fit into a response."""
    return name if len(name) <= _SHOWN_CHARS_MAX else name[:_SHOWN_CHARS_MAX] + "..."


def _check_resource(image: MetadataImage, kind: int, name: str) -> None:
    match kind:
        case ResourceType.TOPIC:
            validate_name(name)
            if name not in image.topics_by_name:
                raise UnknownTopicError(f"The topic '{name}' does not exist.")
        case ResourceType.BROKER:
            if not name:
                return  # the cluster-wide default
            if not (name.isascii() and name.isdigit()) or len(name) > len(str(2**31)):
                raise InvalidRequestError(
                    f"Unable to parse broker name as a base 10 number: {_shown(name)!r}"
                )
            if int(name) not in image.brokers and int(name) not in image.controllers:
                raise BrokerIdNotRegisteredError(f"No node with id {name} found.")
        case _:
            raise InvalidRequestError(f"Unexpected resource type {kind}{_kind_name(kind)}")


def _kind_name(kind: int) -> str:
    """Name of a resource type that Kafka has and this version lacks."""
    for known in ResourceType:
        if known == kind:
            return f" ({known.name}): this version has settings of topics and brokers only"
    return ""


def _new_value(
    kind: int, change: ConfigChange, existing: Mapping[str, str], rules: ConfigRules
) -> str | None:
    match change.config_operation:
        case Operation.SET:
            return change.value
        case Operation.DELETE:
            return None
        case Operation.APPEND | Operation.SUBTRACT:
            pass
        case _:
            raise InvalidRequestError(f"Unknown operation type {change.config_operation}")
    assert change.value is not None
    what = Operation(change.config_operation).name
    if not rules.is_list(kind, change.name):
        raise InvalidConfigError(
            f"Can't {what} to key {_shown(change.name)} because its type is not LIST."
        )
    current = existing.get(change.name)
    if current is None:
        current = rules.default_of(kind, change.name)
    parts = _split(current or "")
    asked = dict.fromkeys(_split(change.value))
    if change.config_operation == Operation.APPEND:
        there = set(parts)
        parts += [part for part in asked if part not in there]
    else:
        parts = [part for part in parts if part not in asked]
    return ",".join(parts)


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _records_of(
    image: MetadataImage,
    resource: ResourceChange,
    changes: Mapping[str, str | None],
    minimums: dict[str, str | None],
) -> list[MetadataRecord]:
    """Records to write; new minimums of topics are noted in `minimums`."""
    kind, name = resource.resource_type, resource.resource_name
    existing = image.configs.get((kind, name), {})
    # A broker's config is written also when it is the same: brokers re-read files named in it.
    written = {
        key: value
        for key, value in changes.items()
        if existing.get(key) != value or kind == ResourceType.BROKER
    }
    records = [
        make("ConfigRecord", resource_type=kind, resource_name=name, name=key, value=value)
        for key, value in written.items()
    ]
    if MIN_ISR in written and image.elr_enabled:
        # The ELR was decided under the old minimum.
        new = written[MIN_ISR]
        if kind == ResourceType.TOPIC:
            minimums[name] = new
            records.append(make("ClearElrRecord", topic_name=name))
            records += _still_eligible(image, image.topics_by_name[name], new)
        elif not name:
            records.append(make("ClearElrRecord", topic_name=""))
            for topic in image.topics_by_id.values():
                own = minimums.get(topic.name, image.topic_config(topic.name).get(MIN_ISR))
                records += _still_eligible(image, topic, new if own is None else own)
    return records


def _still_eligible(
    image: MetadataImage, topic: TopicImage, new_minimum: str | None
) -> Iterator[MetadataRecord]:
    """Keep the ELR of partitions where no record can have been committed without its members.

    These are partitions whose ISR is smaller than both the old and the new minimum. With an unknown
    minimum they are only those with an empty ISR. DIFFERS: Kafka clears the ELR, and then only an
    unclean election can give such a partition a leader.
    """
    version = partition_record_version(image.metadata_version)
    minimum = number_in(new_minimum, 1)
    for index, one in topic.partitions.items():
        if not one.elr and not one.last_known_elr:
            continue
        if len(one.isr) < min(minimum, len(one.replicas)):
            yield make(
                "PartitionChangeRecord",
                version,
                partition_id=index,
                topic_id=topic.id,
                eligible_leader_replicas=list(one.elr),
                last_known_elr=list(one.last_known_elr),
            )
