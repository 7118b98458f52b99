"""The topics and partitions that a decoded request names, and those of single list elements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from broker.testing.faults.shapes import TOPIC_RESOURCE, Level, shape_of

NameOf = Callable[[bytes], str | None]
"""The name of the topic with an id, None where there is none."""

_NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class Named:
    """The topics and partitions of a request.

    Attributes:
        topics: By name, each with its partitions; None as the partition of a topic without any.
        names_all: It asks for all topics.
    """

    topics: frozenset[tuple[str, int | None]] = frozenset()
    names_all: bool = False

    def includes(self, topic: str, partition: int | None) -> bool:
        """True if the request is about this topic, and about this partition of it if one is given.

        A request that names a topic without partitions is about all of them.
        """
        if self.names_all:
            return True
        if partition is None:
            return any(name == topic for name, _ in self.topics)
        return (topic, partition) in self.topics or (topic, None) in self.topics


def topic_of(level: Level, element: Any, name_of: NameOf) -> str | None:
    """The topic of an element of a request or an answer, None where it is no topic."""
    if isinstance(element, str):
        return element
    if level.kind == "resource":
        is_topic = element.resource_type == TOPIC_RESOURCE
        return str(element.resource_name) if is_topic else None
    name = getattr(element, "name", None) or getattr(element, "topic", None)
    if name:
        return str(name)
    topic_id = getattr(element, "topic_id", _NO_ID)
    return None if topic_id == _NO_ID else name_of(topic_id)


def partition_of(element: Any, attribute: str) -> int:
    """The partition of an element; `attribute` is "" for a plain number."""
    return int(getattr(element, attribute) if attribute else element)


def named_by(api_key: int, version: int, request: Any, name_of: NameOf) -> Named:
    """Collect the names in the lists of a decoded request."""
    shape = shape_of(api_key)
    level = shape.level(version)
    if level is None:
        return Named()
    is_all: list[bool] = []
    found = frozenset(_walk(level, request, name_of, is_all))
    return Named(found, shape.absent_is_all and bool(is_all))


def _walk(
    level: Level, holder: Any, name_of: NameOf, is_all: list[bool]
) -> Iterator[tuple[str, int | None]]:
    elements = getattr(holder, level.asked)
    if not elements and level.kind == "topic":
        is_all.append(True)
    for element in elements or ():
        if level.kind not in ("topic", "resource"):
            if level.inner is not None:
                yield from _walk(level.inner, element, name_of, is_all)
            continue
        topic = topic_of(level, element, name_of)
        if topic is None:
            continue
        if level.inner is None:
            yield topic, None
            continue
        (attribute,) = level.inner.keys
        for one in getattr(element, level.inner.asked) or ():
            yield topic, partition_of(one, attribute)
