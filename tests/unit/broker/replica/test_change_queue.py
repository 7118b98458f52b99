"""Which changes of replicas come next: in the order of each topic, and small topics soon."""

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from broker.replica.hosting import ChangeQueue
from kafka_protocol.types import TopicPartition


@dataclass(frozen=True)
class Said:
    topic_partition: TopicPartition
    number: int


def queue_of(*topics: tuple[str, int]) -> ChangeQueue[Said]:
    queue: ChangeQueue[Said] = ChangeQueue()
    for name, count in topics:
        for number in range(count):
            queue.put(Said(TopicPartition(name, number), number))
    return queue


def names(taken: list[Said]) -> list[str]:
    return [one.topic_partition.topic for one in taken]


def test_a_topic_that_came_last_does_not_wait_for_a_thousand_partitions() -> None:
    queue = queue_of(("large", 1_000), ("small", 1))
    assert "small" in names(queue.take(250))


def test_a_topic_that_came_last_does_not_wait_for_a_thousand_topics() -> None:
    queue = queue_of(*((f"t-{number}", 1) for number in range(1_000)), ("small", 1))
    assert "small" in names(queue.take(250))


def test_the_first_topic_goes_on_however_many_come_after_it() -> None:
    queue = queue_of(("first", 100))
    taken: list[Said] = []
    for number in range(20):
        for late in range(10):
            queue.put(Said(TopicPartition(f"late-{number}-{late}", 0), 0))
        taken += queue.take(10)
    assert names(taken).count("first") == 100


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=60),
    st.lists(st.integers(1, 7), min_size=1, max_size=60),
)
def test_none_is_lost_and_each_topic_keeps_its_order(
    said: list[tuple[str, int]], sizes: list[int]
) -> None:
    queue: ChangeQueue[Said] = ChangeQueue()
    given_in, taken_out = defaultdict(list), defaultdict(list)
    for number, (name, partition) in enumerate(said):
        change = Said(TopicPartition(name, partition), number)
        queue.put(change)
        given_in[name].append(change)
        if number % 3 == 0:
            for one in queue.take(sizes[number % len(sizes)]):
                taken_out[one.topic_partition.topic].append(one)
    size = sizes[0]
    while queue:
        before = len(queue)
        batch = queue.take(size)
        assert len(batch) == min(size, before)
        assert len(queue) == before - len(batch)
        for one in batch:
            taken_out[one.topic_partition.topic].append(one)
    assert taken_out == given_in
