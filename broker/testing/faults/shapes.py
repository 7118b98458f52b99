"""Where a request names what it is about, and where its answer speaks of each of them.

An answer mirrors the lists of its request: an element for each topic, in it one for each partition.
This is the one table of these pairs; codes, defaults and versions come from the schemas in
`kafka_protocol.wire`. An API without a row has no such lists: its answer has a code at its top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import ALL_VERSIONS, ArrayType, StructType, Versions

TOPIC_RESOURCE: Final = 2
"""`ResourceType` of a topic in requests about configs."""


@dataclass(frozen=True, slots=True)
class Level:
    """A list of a request that the answer mirrors element for element.

    Attributes:
        asked, answered: the list's attribute in the request and in the answer.
        keys: what says which element is meant: attribute in the request -> attribute in the answer.
            "" is the element itself, where the request has plain names or numbers.
        kind: "topic", "partition", "resource" (a topic or something else), or "" for what is
            neither.
        inner: the list in each element, None where there is none.
        versions: of the API that have this list.
    """

    asked: str
    answered: str
    keys: Mapping[str, str]
    kind: str
    inner: "Level | None" = None
    versions: Versions = ALL_VERSIONS


@dataclass(frozen=True, slots=True)
class Shape:
    """What one API's requests name.

    Attributes:
        levels: the outermost lists; a version has at most one of them.
        always_served: the answer says more than its list: it is served for what else it asks.
        top_is_general: a code at the top stands for the whole request; of Fetch it is of sessions,
            and clients know none at the top of Metadata.
        absent_is_all: a request without the list, or with none in it, asks for all topics.
    """

    levels: tuple[Level, ...] = ()
    always_served: bool = False
    top_is_general: bool = True
    absent_is_all: bool = False

    def level(self, version: int) -> Level | None:
        """The outermost list in a version of the API."""
        return next((one for one in self.levels if version in one.versions), None)

    @property
    def names(self) -> frozenset[str]:
        """Kinds of what its requests name, in any version; a resource may be a topic."""
        found: set[str] = set()
        for level in self.levels:
            below: Level | None = level
            while below is not None:
                found.add("topic" if below.kind == "resource" else below.kind)
                below = below.inner
        return frozenset(found)


def _same(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


def _topics(inner: Level | None = None, *, with_ids: bool = False, **given: Any) -> Level:
    """A list `topics` that the answer calls so, too."""
    keys = _same("name", "topic_id") if with_ids else _same("name")
    return Level("topics", "topics", keys, "topic", inner, **given)


def _partitions(asked: str = "partition_index", answered: str = "partition_index") -> Level:
    return Level("partitions", "partitions", {asked: answered}, "partition")


_INDEXES = Level("partition_indexes", "partitions", {"": "partition_index"}, "partition")
_RESOURCE = _same("resource_type", "resource_name")

_SHAPES: Final[Mapping[int, Shape]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Shape(
            (
                Level(
                    "topic_data",
                    "responses",
                    _same("name", "topic_id"),
                    "topic",
                    Level("partition_data", "partition_responses", _same("index"), "partition"),
                ),
            )
        ),
        ApiKey.FETCH: Shape(
            (
                Level(
                    "topics",
                    "responses",
                    _same("topic", "topic_id"),
                    "topic",
                    _partitions("partition"),
                ),
            ),
            top_is_general=False,
        ),
        ApiKey.LIST_OFFSETS: Shape((_topics(_partitions()),)),
        ApiKey.METADATA: Shape(
            (_topics(with_ids=True),), always_served=True, top_is_general=False, absent_is_all=True
        ),
        ApiKey.OFFSET_COMMIT: Shape((_topics(_partitions(), with_ids=True),)),
        ApiKey.OFFSET_FETCH: Shape(
            (
                _topics(_INDEXES, versions=Versions(0, 7)),
                Level(
                    "groups",
                    "groups",
                    _same("group_id"),
                    "",
                    _topics(_INDEXES, with_ids=True),
                    versions=Versions(8, 99),
                ),
            ),
            absent_is_all=True,
        ),
        ApiKey.FIND_COORDINATOR: Shape(
            (Level("coordinator_keys", "coordinators", {"": "key"}, "", versions=Versions(4, 99)),)
        ),
        ApiKey.DESCRIBE_GROUPS: Shape((Level("groups", "groups", {"": "group_id"}, ""),)),
        ApiKey.DELETE_GROUPS: Shape((Level("groups_names", "results", {"": "group_id"}, ""),)),
        ApiKey.OFFSET_DELETE: Shape((_topics(_partitions()),)),
        ApiKey.CREATE_TOPICS: Shape((_topics(),)),
        ApiKey.CREATE_PARTITIONS: Shape((Level("topics", "results", _same("name"), "topic"),)),
        ApiKey.DELETE_TOPICS: Shape(
            (
                Level("topic_names", "responses", {"": "name"}, "topic", versions=Versions(0, 5)),
                Level(
                    "topics",
                    "responses",
                    _same("name", "topic_id"),
                    "topic",
                    versions=Versions(6, 99),
                ),
            )
        ),
        ApiKey.DELETE_RECORDS: Shape((_topics(_partitions()),)),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Shape(
            (
                Level(
                    "topics",
                    "topics",
                    _same("topic"),
                    "topic",
                    _partitions("partition", "partition"),
                ),
            )
        ),
        ApiKey.DESCRIBE_CONFIGS: Shape((Level("resources", "results", _RESOURCE, "resource"),)),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Shape(
            (Level("resources", "responses", _RESOURCE, "resource"),)
        ),
        ApiKey.CREATE_ACLS: Shape((Level("creations", "results", {}, ""),)),
        ApiKey.DELETE_ACLS: Shape((Level("filters", "filter_results", {}, ""),)),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Shape((_topics(),), absent_is_all=True),
    }
)
_NO_LISTS: Final = Shape()


def shape_of(api_key: int) -> Shape:
    """What requests of an API name."""
    return _SHAPES.get(api_key, _NO_LISTS)


def element_of(struct: StructType, attribute: str) -> StructType:
    """The struct of a list's elements."""
    kind = next(field.type for field in struct.fields if field.attribute == attribute)
    assert isinstance(kind, ArrayType), attribute
    assert isinstance(kind.element, StructType), attribute
    return kind.element


def has_field(struct: StructType, attribute: str, version: int) -> bool:
    """Whether a struct has a field in a version."""
    return any(one.attribute == attribute and version in one.versions for one in struct.fields)


def has_top_code(api_key: int, version: int) -> bool:
    """Whether an answer has a code at its top that stands for the whole request."""
    is_general = shape_of(api_key).top_is_general
    return is_general and has_field(codec.response(api_key).struct, "error_code", version)
