"""Which changes of replicas come next: the topics that came first, and those that came last.

A topic of one partition would wait for the thousands that somebody asked for just before it. So
half of each batch goes to the topics that were said last; the other half lets nobody wait for ever.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar

from kafka_protocol.types import TopicPartition


class OfPartition(Protocol):
    """What is said of one partition."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""
        ...


C = TypeVar("C", bound=OfPartition)


class ChangeQueue(Generic[C]):
    """Changes that wait; those of one topic keep their order."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[C]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, change: C) -> None:
        """Add one behind the others of its topic."""
        self._by_topic.setdefault(change.topic_partition.topic, deque()).append(change)
        self._size += 1

    def take(self, most: int) -> list[C]:
        """Take at most so many out."""
        taken: list[C] = []
        while self._by_topic and len(taken) < most:
            is_first_half = len(taken) < (most + 1) // 2
            name = next(iter(self._by_topic) if is_first_half else reversed(self._by_topic))
            waiting = self._by_topic[name]
            until = (most + 1) // 2 if is_first_half else most
            while waiting and len(taken) < until:
                taken.append(waiting.popleft())
            if not waiting:
                del self._by_topic[name]
        self._size -= len(taken)
        return taken
