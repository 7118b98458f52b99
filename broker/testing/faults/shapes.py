"""Where a request names what it is about, and where its answer speaks of each of them.

An answer mirrors the lists of its request: an element for each topic, in it one for each partition.
These pairs stand beside the schemas in `kafka_protocol.wire.messages`, which give codes, defaults
and versions, too. An API without pairs has no such lists: its answer has a code at its top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, schemas_of
from kafka_protocol.wire.schema import ALL_VERSIONS, ArrayType, StructType, Versions, versions_of

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
        top_is_special: a code at the top does not stand for the whole request; of Fetch it is of
            sessions, and clients know none at the top of Metadata.
        absent_is_all: a request without the list, or with none in it, asks for all topics.
    """

    levels: tuple[Level, ...] = ()
    always_served: bool = False
    top_is_special: bool = False
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


_NO_LISTS: Final = Shape()
_KEYS: Final = frozenset(ApiKey)


def shape_of(api_key: int) -> Shape:
    """What requests of an API name."""
    return _shape_of(ApiKey(api_key)) if api_key in _KEYS else _NO_LISTS


@cache
def _shape_of(api_key: ApiKey) -> Shape:
    text = getattr(schemas_of(api_key.name), "MIRRORED", None)
    if text is None:
        return _NO_LISTS
    lines = text.replace("\n    ", " ").strip().splitlines()
    also = lines.pop().split() if lines[-1].startswith("also ") else []
    return Shape(
        tuple(_level(line.split(" / ")) for line in lines),
        always_served="always_served" in also,
        top_is_special="top_is_special" in also,
        absent_is_all="absent_is_all" in also,
    )


def _level(texts: list[str]) -> Level:
    """The first list, with the others in it."""
    names, kind, keys, *versions = texts[0].split()
    return Level(
        *_pair(names),
        keys={} if keys == "-" else dict(_pair(key) for key in keys.split(",")),
        kind=kind.strip("-"),
        inner=_level(texts[1:]) if texts[1:] else None,
        versions=versions_of(versions[0]) if versions else ALL_VERSIONS,
    )


def _pair(text: str) -> tuple[str, str]:
    asked, both, answered = text.partition(">")
    return asked, answered if both else asked


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
    is_special = shape_of(api_key).top_is_special
    return not is_special and has_field(codec.response(api_key).struct, "error_code", version)
