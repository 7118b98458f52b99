"""What somebody asks for when a topic is to be created.

`NewTopic` is a protocol that the structs of CreateTopicsRequest fit as they are; `TopicSpec` is the
same for callers inside the broker (auto-creation, internal topics).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

DEFAULT: Final = -1
"""Partitions or replicas: as the broker's configuration says."""


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
        """Its name."""

    @property
    def value(self) -> str | None:
        """None is refused."""


class NewTopic(Protocol):
    """A topic of a CreateTopics request; the request's own structs fit."""

    @property
    def name(self) -> str:
        """Its name."""

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
        """Overrides."""


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
    """What -1 in a request means.

    Attributes:
        num_partitions: `num.partitions`.
        replication_factor: `default.replication.factor`.
    """

    num_partitions: int = 1
    replication_factor: int = 1
