"""Which part of the metadata topic a broker sees, and what its remover may settle by it."""

from metadata_topic_harness import Node

from kafka_protocol.types import TopicIdPartition
from rlmm.api import Fence
from rlmm.topic_based.memory_topic import MemoryTopic
from rlmm.topic_based.topic_port import metadata_partition_for
from runtime.clock import ManualClock

PARTITIONS = 3


def one_in_each() -> list[TopicIdPartition]:
    """User partitions of one topic, one in each metadata partition."""
    found: dict[int, TopicIdPartition] = {}
    for number in range(50):
        partition = TopicIdPartition(b"T" * 16, number, "orders")
        found.setdefault(metadata_partition_for(partition, PARTITIONS), partition)
    assert len(found) == PARTITIONS
    return list(found.values())


def test_all_is_led_only_when_every_metadata_partition_was_read_to_its_end() -> None:
    topic, clock = MemoryTopic(PARTITIONS), ManualClock()
    node = Node(topic, clock, 1)
    assert not node.manager.leads_all(), "nothing is connected yet"
    node.turn()
    for partition in one_in_each():
        node.own(Fence(1, 1), partition)
    assert not node.manager.leads_all(), "owned, not led"
    node.manager.lead([0, 1])
    node.turn()
    assert not node.manager.leads_all()
    assert len(node.manager.led_partitions()) == 2
    node.manager.lead([0, 1, 2])
    node.turn()
    assert node.manager.leads_all()
    assert len(node.manager.led_partitions()) == PARTITIONS
    node.kill()
    node.port.deaf = True
    node.manager.lead(None)
    node.turn()
    assert not node.manager.leads_all(), "a new life has not read to the end yet"
    node.port.deaf = False
    node.turn()
    assert node.manager.leads_all()
