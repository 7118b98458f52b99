"""Which removals of topics a start has read, and of which it deletes what is here."""

from typing import Any

from broker.process.broker_logs import RemovalsRead
from metadata_topic.image.delta import MetadataDelta, TopicName
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.quorum.metadata_loader import Subscriber

A, B, C, D = (letter * 16 for letter in (b"a", b"b", b"c", b"d"))


class Node:
    """What a start has of its node: the removals that were replayed, and those that come."""

    first_removed = frozenset({A})

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def remove(self, topic_id: bytes) -> None:
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.removed_topics.add(topic_id)
        self._notify(delta)

    def lose(self, topic_id: bytes) -> None:
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.deleted_topics[topic_id] = TopicName("t", topic_id)
        self._notify(delta)

    def _notify(self, delta: MetadataDelta) -> None:
        for subscriber in self._subscribers:
            subscriber(EMPTY_IMAGE, delta)


def test_removals_of_the_first_replay_and_later_ones_are_read() -> None:
    fake = Node()
    node: Any = fake
    removals = RemovalsRead(node)
    fake.remove(B)
    assert removals.take() == {A, B}
    fake.remove(C)
    assert removals.take() == {C}
    assert removals.take() == frozenset()


def test_a_topic_that_is_gone_counts_as_removed_once_logs_are_opened() -> None:
    """A fetched snapshot names no removals; before, it proves nothing of what lies on the disk."""
    fake = Node()
    node: Any = fake
    removals = RemovalsRead(node)
    fake.lose(B)
    assert removals.take() == {A}
    fake.lose(C)
    assert removals.take() == {C}


def test_removals_after_the_end_are_not_kept() -> None:
    """They would be kept for as long as the broker runs."""
    fake = Node()
    node: Any = fake
    removals = RemovalsRead(node)
    removals.take()
    removals.end()
    fake.remove(D)
    assert removals.take() == frozenset()
