"""Requests to create topics, and the rules for topic names.

`NewTopic` is a protocol that the structs of CreateTopicsRequest satisfy. `TopicSpec` is the same
for callers inside the broker (auto-creation, internal topics).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from metadata_topic.controller.errors import InvalidTopicError

NAME_CHARS_MAX: Final = 249

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Topics that Kafka marks as internal, which `__remote_log_metadata` is not."""

_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")

DEFAULT: Final = -1
"""Number of partitions or replicas: take it from the broker's configuration."""


def validate_name(name: str) -> None:
    """Check a topic name.

    A name becomes a directory (`<name>-<partition>`) and a metric, where "." and "_" look the same.
    So its characters and length are limited, and names must not differ in these two only.

    Raises:
        InvalidTopicError: The message has the cause; it does not repeat a name that is too long.
    """
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed")
    if name in {".", ".."}:
        raise InvalidTopicError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidTopicError(
            f"Topic name is invalid: its length of {len(name)} is longer than the max allowed "
            f"length {NAME_CHARS_MAX}"
        )
    if not _ALLOWED.match(name):
        raise InvalidTopicError(
            f"Topic name is invalid: {name!r} contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )


class ReplicaAssignment(Protocol):
    """Manual replicas of one partition, as in the request."""

    @property
    def partition_index(self) -> int:
        """Index from 0."""

    @property
    def broker_ids(self) -> Sequence[int]:
        """The leader first."""


class ConfigEntry(Protocol):
    """A config of a new topic, as in the request."""

    @property
    def name(self) -> str:
        """Key."""

    @property
    def value(self) -> str | None:
        """None, which is refused."""


class NewTopic(Protocol):
    """A topic of a CreateTopics request; the message's structs have this shape."""

    @property
    def name(self) -> str:
        """Topic name."""

    @property
    def num_partitions(self) -> int:
        """-1 for the default."""

    @property
    def replication_factor(self) -> int:
        """-1 for the default."""

    @property
    def assignments(self) -> Sequence[ReplicaAssignment]:
        """Manual replicas; empty to have them chosen."""

    @property
    def configs(self) -> Sequence[ConfigEntry]:
        """Overrides of the topic."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A ReplicaAssignment for callers inside the broker."""

    partition_index: int
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Config:
    """A ConfigEntry for callers inside the broker."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A NewTopic for callers inside the broker (auto-creation, internal topics)."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[Config, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Values for -1 in a request.

    Attributes:
        num_partitions: `num.partitions`.
        replication_factor: `default.replication.factor`.
    """

    num_partitions: int = 1
    replication_factor: int = 1
