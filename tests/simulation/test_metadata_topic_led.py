"""Which part of the metadata topic a broker sees, and what its remover may settle by it."""

from metadata_topic_harness import Node

from kafka_protocol.types import TopicIdPartition
from rlmm.api import Fence, PartitionDeleteState
from rlmm.lifecycle import PartitionFacts, deletion_of
from rlmm.store import MemoryStore
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


class CountingStore(MemoryStore):
    """Counts the scans of all user partitions in a metadata partition."""

    def __init__(self) -> None:
        super().__init__()
        self.scans = 0

    def all_facts(self, metadata_partition: int) -> list[PartitionFacts]:
        self.scans += 1
        return super().all_facts(metadata_partition)


def test_what_is_led_is_scanned_once_and_then_follows_each_change() -> None:
    topic, store = MemoryTopic(PARTITIONS), CountingStore()
    node = Node(topic, ManualClock(), 1, store=store)
    node.manager.lead(None)
    node.turn()

    def check(scans: int) -> None:
        for _ in range(3):
            found = node.manager.led_partitions()
        assert store.scans == scans
        facts = [one for n in range(PARTITIONS) for one in MemoryStore.all_facts(store, n)]
        assert sorted(map(repr, found)) == sorted(repr(deletion_of(one)) for one in facts)

    check(PARTITIONS)
    one, other, third = one_in_each()
    for partition in (one, other, third):
        node.own(Fence(1, 1), partition)
    check(PARTITIONS)
    node.manager.put_partition_delete(one, PartitionDeleteState.DELETE_PARTITION_MARKED)
    node.turn()
    check(PARTITIONS)
    number = metadata_partition_for(one, PARTITIONS)
    topic.lose(number, len(topic.logs[number]) - 1)
    node.turn(5)
    assert node.manager.leads_all(), "read again"
    check(PARTITIONS + 1)
    node.manager.lead(())
    assert node.manager.led_partitions() == []
    node.manager.lead(None)
    node.turn(5)
    check(2 * PARTITIONS + 1)
