"""Topics as a test writes them down, understood before a broker is started.

A name; a name with partitions, `{"clicks": 3}`; or all of it, `{"name": "orders", "partitions": 3,
"configs": {"retention.ms": 1000}}`, which may also stand under its name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__tracebackhide__ = True
Topic = str | Mapping[str, object]
Topics = Mapping[str, object] | Iterable[Topic]

_FIELDS: Final = ("name", "partitions", "configs")
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ONE_OF: Final = (
    'a topic is "orders", {"orders": 3} or '
    '{"name": "orders", "partitions": 3, "configs": {"retention.ms": 1000}}'
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created.

    Attributes:
        configs: values as text.
    """

    name: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


def topics_of(topics: Topics) -> tuple[NewTopic, ...]:
    """Read what a test says of its topics.

    Raises:
        TypeError, ValueError: it is not understood; names the place, and what may stand there.
    """
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise TypeError(
            f"topics={topics!r}: must be a list of names, or {{name: partitions}}; {_ONE_OF}"
        )
    found = list(_of_mapping("topics", topics) if isinstance(topics, Mapping) else _of_list(topics))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"topics: {name} is there twice")
    return tuple(found)


def new_topic(where: str, name: object, partitions: object = 1, configs: object = None) -> NewTopic:
    """Check the parts of a topic.

    Args:
        where: the place, for errors.
        name: letters, digits, `.`, `_` and `-`, 249 at most.
        partitions: from 1 on.
        configs: values may be numbers and booleans.

    Raises:
        TypeError, ValueError: one cannot be.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(
            f"{where}: {name!r} is no name of a topic: letters, digits, '.', '_' and '-'"
        )
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise ValueError(
            f"{where}: {name}: partitions={partitions!r}: must be a whole number from 1 on"
        )
    if configs is not None and not isinstance(configs, Mapping):
        raise ValueError(f"{where}: {name}: configs={configs!r}: must be {{name: value}}")
    texts = {}
    for key, value in (configs or {}).items():
        if not isinstance(key, str) or not isinstance(value, str | int | float):
            raise TypeError(
                f"{where}: {name}: configs: {key!r}: {value!r}: must be a name, and a text, a"
                " number or a boolean"
            )
        texts[key] = setting_text(value)
    return NewTopic(name, partitions, texts)


def setting_text(value: object) -> str:
    """A setting as server.properties has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_list(topics: Iterable[object]) -> Iterator[NewTopic]:
    for at, one in enumerate(topics):
        where = f"topics[{at}]"
        if isinstance(one, str):
            yield new_topic(where, one)
        elif isinstance(one, Mapping):
            yield from _of_mapping(where, one)
        else:
            raise TypeError(f"{where}={one!r}: {_ONE_OF}")


def _of_mapping(where: str, topics: Mapping[Any, object]) -> Iterator[NewTopic]:
    if isinstance(topics.get("name"), str):  # else it may be a topic of that name
        yield _whole(where, topics)
        return
    for name, said in topics.items():
        if isinstance(said, Mapping):
            yield _whole(where, {"name": name, **said})
        else:
            yield new_topic(where, name, said)


def _whole(where: str, fields: Mapping[Any, object]) -> NewTopic:
    for one in fields:
        if one not in _FIELDS:
            raise ValueError(f"{where}: {one}: no such field; there are {', '.join(_FIELDS)}")
    return new_topic(where, fields["name"], fields.get("partitions", 1), fields.get("configs"))
