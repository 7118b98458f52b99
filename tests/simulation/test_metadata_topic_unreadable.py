"""A metadata partition with a damaged record: nobody validates by a part of it, others continue."""

import pytest

from kafka_protocol.types import TopicIdPartition
from rlmm.api import Fence, MetadataNotReadyError, MetadataWriteTimeoutError, PartitionDeleteState
from rlmm.testing import segment
from rlmm.topic_based.topic_port import damaged, metadata_partition_for, without_end
from tests.support.sim.clock import ManualClock
from tests.support.tier.led_partitions import PARTITIONS, one_in_each
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import Node

FENCE = Fence(1, 1)


@pytest.fixture
def topic() -> MemoryTopic:
    return MemoryTopic(PARTITIONS)


@pytest.fixture
def node(topic: MemoryTopic) -> Node:
    """Owns a user partition in each metadata partition, and leads all of them."""
    node = Node(topic, ManualClock(), 1)
    node.manager.lead(None)
    for partition in one_in_each():
        node.own(FENCE, partition).result(0)
    assert node.manager.leads_all()
    return node


def home(partition: TopicIdPartition) -> int:
    return metadata_partition_for(partition, PARTITIONS)


def damage(topic: MemoryTopic, partition: TopicIdPartition) -> None:
    """The last record of its metadata partition cannot be read, and was not."""
    number = home(partition)
    topic.damaged[number] = len(topic.logs[number])
    topic.land(number, b"nobody reads this")


def test_an_unreadable_metadata_partition_is_named_and_others_continue(
    topic: MemoryTopic, node: Node
) -> None:
    bad, *good = one_in_each()
    damage(topic, bad)
    node.turn()
    [reason] = node.manager.unreadable()
    assert reason == damaged(home(bad), topic.damaged[home(bad)])
    assert not node.manager.is_ready(bad)
    with pytest.raises(MetadataNotReadyError):
        node.segments(bad)
    with pytest.raises(MetadataNotReadyError):
        node.manager.deletion(bad)
    assert not node.manager.leads_all()
    assert {one.partition for one in node.manager.led_partitions()} == set(good)
    for partition in good:
        assert node.manager.is_ready(partition)
        added = node.manager.add(segment(1, 0, 9, partition=partition), FENCE, -1)
        node.turn()
        assert added.exception(0) is None
    assert node.manager.failure() is None


def test_no_barrier_is_written_while_it_cannot_be_read(topic: MemoryTopic, node: Node) -> None:
    bad = one_in_each()[0]
    damage(topic, bad)
    node.turn()
    before = len(topic.logs[home(bad)])
    owned = node.own(Fence(1, 2), bad)
    others = (bad._replace(partition=number) for number in range(1_000, 1_100))
    neighbour = next(other for other in others if home(other) == home(bad))
    followed = node.manager.follow(neighbour)
    node.turn(10)
    assert not owned.done()
    assert not followed.done()
    assert len(topic.logs[home(bad)]) == before
    topic.damaged.clear()
    node.turn(10)
    assert owned.exception(0) is None
    assert followed.exception(0) is None
    assert node.manager.unreadable() == ()
    assert node.manager.leads_all()


def test_while_it_cannot_be_read_turns_are_as_rare_as_without_work(
    topic: MemoryTopic, node: Node
) -> None:
    bad, good, _ = one_in_each()
    node.turn()
    idle_ms = node.port.wait_ms
    damage(topic, bad)
    node.turn()
    owned = node.own(Fence(1, 2), bad)
    node.turn(5)
    assert not owned.done()
    assert node.port.wait_ms == idle_ms
    node.port.held = True
    node.manager.add(segment(1, 0, 9, partition=good), FENCE, -1)
    node.turn()
    assert node.port.wait_ms < idle_ms, "the others are as quick as ever"
    node.port.held = False
    node.port.land_waiting()
    topic.damaged.clear()
    node.turn(5)
    assert owned.exception(0) is None


def test_writes_under_way_end_with_an_unknown_outcome(topic: MemoryTopic, node: Node) -> None:
    bad = one_in_each()[0]
    node.port.held = True
    added = node.manager.add(segment(1, 0, 9, partition=bad), FENCE, -1)
    marked = node.manager.put_partition_delete(bad, PartitionDeleteState.DELETE_PARTITION_MARKED)
    damage(topic, bad)
    node.turn()
    for write in (added, marked):
        assert isinstance(write.exception(0), MetadataWriteTimeoutError)


def test_a_restart_before_it_reads_nothing_and_ends_nothing(topic: MemoryTopic, node: Node) -> None:
    bad = one_in_each()[0]
    topic.damaged[home(bad)] = 0
    node.store.drop(home(bad))
    node.kill()
    node.manager.lead(None)
    owned = [node.own(Fence(1, 2), partition) for partition in one_in_each()]
    node.turn(5)
    assert [each.done() for each in owned] == [False, True, True]
    assert len(node.manager.unreadable()) == 1
    assert node.manager.failure() is None


def test_it_is_said_once_for_as_long_as_it_is_so(
    topic: MemoryTopic, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    bad = one_in_each()[0]
    damage(topic, bad)
    node.turn(10)
    [reason] = node.manager.unreadable()
    assert [record.message for record in caplog.records].count(reason) == 1
    topic.damaged.clear()
    node.turn(10)
    assert node.manager.unreadable() == ()
    damage(topic, bad)
    node.turn(10)
    [again] = node.manager.unreadable()
    assert again != reason, "it is another batch"
    assert again in [record.message for record in caplog.records]


def test_a_damaged_record_is_named_before_an_end_that_is_not_told(
    topic: MemoryTopic, node: Node
) -> None:
    """No restart helps against it."""
    bad = one_in_each()[0]
    damage(topic, bad)
    node.turn()
    node.port.tells_ends = False
    node.manager.lead([])
    node.manager.lead([home(bad)])
    node.turn(3)
    node.clock.advance(60_000)
    node.turn()
    assert node.manager.unreadable() == (damaged(home(bad), topic.damaged[home(bad)]),)


def test_an_end_that_is_not_told_for_a_minute_is_named(topic: MemoryTopic) -> None:
    node = Node(topic, ManualClock(), 1)
    node.port.tells_ends = False
    node.manager.lead([2])
    node.turn(3)
    node.clock.advance(59_999)
    node.turn()
    assert node.manager.unreadable() == ()
    node.clock.advance(1)
    node.turn()
    assert node.manager.unreadable() == (without_end(2, 60),)
    node.port.tells_ends = True
    node.clock.advance(100)  # it asks again
    node.turn()
    assert node.manager.unreadable() == ()
    node.port.tells_ends = False
    node.manager.lead([])
    node.manager.lead([2])
    node.turn(2)
    assert node.manager.unreadable() == (), "this question is a new one"
