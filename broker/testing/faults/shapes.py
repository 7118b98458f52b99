"""The lists in which a request names topics and partitions, and their lists in its answer.

An answer mirrors the lists of its request: an element for each topic, in it one for each partition.
These pairs are beside the schemas in `kafka_protocol.wire.messages`, which also give codes,
defaults and versions. An API without pairs has no such lists: its answer has a code at its top.
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
        asked, answered: The list's attribute in the request and in the answer.
        keys: Attributes that identify an element: in the request -> in the answer. "" is the
            element itself, where the request has plain names or numbers.
        kind: "topic", "partition", "resource" (a topic or something else), or "" for neither.
        inner: The list in each element, None where there is none.
        versions: Of the API that have this list.
    """

    asked: str
    answered: str
    keys: Mapping[str, str]
    kind: str
    inner: "Level | None" = None
    versions: Versions = ALL_VERSIONS


@dataclass(frozen=True, slots=True)
class Shape:
    """The lists of one API's requests.

    Attributes:
        levels: The outermost lists; a version has at most one of them.
        always_served: The answer has more than its list, so the request is always served.
        top_is_special: A code at the top does not stand for the whole request. Fetch has codes of
            sessions there, and clients expect none at the top of Metadata.
        absent_is_all: A request without the list, or with an empty one, asks for all topics.
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
        """Kinds of the names in its requests, in any version; a resource may be a topic."""
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
    """The lists of an API's requests."""
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
    """Make the first list, with the others as its inner ones."""
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
    """True if a struct has a field in a version."""
    return any(one.attribute == attribute and version in one.versions for one in struct.fields)


def has_top_code(api_key: int, version: int) -> bool:
    """True if an answer has a code at its top that stands for the whole request."""
    is_special = shape_of(api_key).top_is_special
    return not is_special and has_field(codec.response(api_key).struct, "error_code", version)
