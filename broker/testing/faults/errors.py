"""Answers with errors: made of the request alone, in the shape of its API and version.

A request is split in two: the part that errors stand for, which is not served, and the rest, which
is. An error without a topic stands for the whole request. Its code is at the top of the answer if
the API has one there. Otherwise it is in each element of the outermost list with a code. An error
with a topic stands for the elements of this topic.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.testing.faults.book import Entry
from broker.testing.faults.naming import NameOf, partition_of, topic_of
from broker.testing.faults.rule import RequestFault
from broker.testing.faults.shapes import Level, element_of, has_field, has_top_code, shape_of
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import StructType

_NOTHING_THERE: Final = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "producer_epoch": -1,
    "records": b"",
}
"""Kafka's values beside an error where the schema's default is another one. `records` is not null:
librdkafka takes that for a malformed answer."""

_OF_SESSIONS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Codes that stand at the top of an answer to Fetch; no partition has them."""

_SESSIONS_SINCE: Final = 7


@dataclass(frozen=True, slots=True)
class Split:
    """A request that is hit by errors, in two parts.

    Attributes:
        answer: To the part that is not served; the whole answer where `rest` is None.
        rest: The request that is served, None where nothing is left of it.
    """

    answer: Any
    rest: Any


class _Kind(NamedTuple):
    """A struct of the answer: its schema, and the class of its values."""

    struct: StructType
    cls: Any

    def element(self, attribute: str) -> "_Kind":
        """The kind of a list's elements."""
        struct = element_of(self.struct, attribute)
        return _Kind(struct, getattr(self.cls, struct.class_name))


class ErrorAnswers:
    """Splits the requests of one API and version, and puts their answers together."""

    def __init__(self, api_key: int, version: int, name_of: NameOf) -> None:
        """Make them for one API and version; `name_of` finds a topic by its id."""
        self._api_key, self._version, self._name_of = api_key, version, name_of
        self._shape = shape_of(api_key)
        self._level = self._shape.level(version)
        message = codec.response(api_key)
        self._kind = _Kind(message.struct, message.cls)

    def split(self, request: Any, errors: Sequence[Entry]) -> Split:
        """Remove the part of a request that errors stand for.

        Args:
            request: Decoded; it is not changed.
            errors: Faults that hit it, in their order; not empty.
        """
        top = self._top(errors[0])
        if top is not None:
            return Split(top, None)
        answer = self._kind.cls()
        level = self._level
        if level is None:
            return Split(answer, None)
        kept, failed = self._split_list(level, request, errors, None, self._kind)
        setattr(answer, level.answered, failed)
        asks_for_all = self._shape.absent_is_all and not getattr(request, level.asked)
        if not (kept or asks_for_all or self._shape.always_served):
            return Split(answer, None)
        rest = copy.copy(request)
        if not asks_for_all:
            setattr(rest, level.asked, kept)
        return Split(answer, rest)

    def _top(self, entry: Entry) -> Any:
        """An answer with a code at its top; None where the code belongs in elements."""
        fault: RequestFault = entry.fault
        is_top = has_top_code(self._api_key, self._version) and fault.topic is None
        if self._api_key == ApiKey.FETCH and fault.error in _OF_SESSIONS:
            is_top = self._version >= _SESSIONS_SINCE
        if not is_top:
            return None
        answer = self._kind.cls()
        self._fail(answer, self._kind.struct, entry)
        return answer

    def _split_list(
        self,
        level: Level,
        holder: Any,
        errors: Sequence[Entry],
        topic: str | None,
        kind: _Kind,
    ) -> tuple[list[Any], list[Any]]:
        """Elements that stay in the request, and elements of the answer for the others."""
        kept, failed = [], []
        below = kind.element(level.answered)
        for element in getattr(holder, level.asked) or ():
            rest, error = self._split_element(level, element, errors, topic, below)
            if rest is not None:
                kept.append(rest)
            if error is not None:
                failed.append(error)
        return kept, failed

    def _split_element(
        self,
        level: Level,
        element: Any,
        errors: Sequence[Entry],
        topic: str | None,
        kind: _Kind,
    ) -> tuple[Any, Any]:
        """The rest of an element, and its error; either may be None."""
        partition = None
        if level.kind in ("topic", "resource"):
            topic = topic_of(level, element, self._name_of)
        elif level.kind == "partition":
            partition = partition_of(element, next(iter(level.keys)))
        has_code = has_field(kind.struct, "error_code", self._version)
        inner = level.inner
        entry = _entry_for(errors, topic, partition)
        if entry is not None and has_code:
            return None, self._failed_element(level, element, entry, kind)
        if inner is None or getattr(element, inner.asked) is None:
            return element, None
        kept, failed = self._split_list(inner, element, errors, topic, kind)
        if not failed:
            return element, None
        error = self._empty_element(level, element, kind)
        setattr(error, inner.answered, failed)
        if not kept:
            return None, error
        rest = copy.copy(element)
        setattr(rest, inner.asked, kept)
        return rest, error

    def _empty_element(self, level: Level, element: Any, kind: _Kind) -> Any:
        """An element of the answer with the names of `element` in the request."""
        made = kind.cls()
        for asked, answered in level.keys.items():
            field = next(one for one in kind.struct.fields if one.attribute == answered)
            value = getattr(element, asked) if asked else element
            if value is None and self._version not in field.nullable:
                value = topic_of(level, element, self._name_of) or ""
            setattr(made, answered, value)
        return made

    def _failed_element(self, level: Level, element: Any, entry: Entry, kind: _Kind) -> Any:
        made = self._empty_element(level, element, kind)
        self._fail(made, kind.struct, entry)
        return made

    def _fail(self, made: Any, struct: StructType, entry: Entry) -> None:
        for field in struct.fields:
            if field.attribute in _NOTHING_THERE:
                setattr(made, field.attribute, _NOTHING_THERE[field.attribute])
            elif field.attribute == "error_message":
                setattr(made, field.attribute, f"fault {entry.id}, which a test asked for")
        made.error_code = int(entry.fault.error)

    # -- joining

    def join(self, served: Any, errors: Sequence[Entry], failed: Any) -> Any:
        """Join the answer to the rest with that of the part that was not served.

        Args:
            served: The answer to the rest.
            errors: The errors of the split; they also hit topics that a request for all topics did
                not name.
            failed: The answer of the part that was not served.
        """
        level = self._level
        assert level is not None
        if self._shape.absent_is_all:
            self._overwrite(level, served, errors, None, self._kind)
        _merge(level, served, failed)
        return served

    def _overwrite(
        self,
        level: Level,
        holder: Any,
        errors: Sequence[Entry],
        topic: str | None,
        kind: _Kind,
    ) -> None:
        """Replace served elements that errors stand for."""
        below = kind.element(level.answered)
        elements = getattr(holder, level.answered)
        for at, element in enumerate(elements):
            partition = None
            if level.kind == "topic":
                topic = topic_of(level, element, self._name_of)
            elif level.kind == "partition":
                partition = partition_of(element, next(iter(level.keys.values())))
            inner = level.inner
            entry = _entry_for(errors, topic, partition)
            if entry is not None and has_field(below.struct, "error_code", self._version):
                made = type(element)()
                for answered in level.keys.values():
                    setattr(made, answered, getattr(element, answered))
                self._fail(made, below.struct, entry)
                elements[at] = made
            elif inner is not None:
                self._overwrite(inner, element, errors, topic, below)


def _entry_for(errors: Sequence[Entry], topic: str | None, partition: int | None) -> Entry | None:
    """The first error that stands for an element as a whole.

    Args:
        errors: In their order.
        topic: Of the element or around it, None if there is none.
        partition: Of the element, None if it is no partition.
    """
    for entry in errors:
        fault: RequestFault = entry.fault
        if fault.topic is None:
            return entry
        if fault.topic != topic:
            continue
        if fault.partition is None or fault.partition == partition:
            return entry
    return None


def _merge(level: Level, served: Any, failed: Any) -> None:
    """Add the elements of `failed` to those of `served`, under the same names where they exist."""
    elements = getattr(served, level.answered)
    for extra in getattr(failed, level.answered):
        same = next((one for one in elements if _is_same(level, one, extra)), None)
        if same is None:
            elements.append(extra)
        elif level.inner is not None:
            _merge(level.inner, same, extra)


def _is_same(level: Level, one: Any, other: Any) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in level.keys.values())
