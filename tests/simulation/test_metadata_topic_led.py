"""Which part of the metadata topic a broker sees, and what its remover may settle by it."""

import tracemalloc
from random import Random

from rlmm.api import Fence, PartitionDeleteState
from rlmm.lifecycle import PartitionFacts, deletion_of
from rlmm.store import MemoryStore
from rlmm.topic_based.deletions import PackedIds
from rlmm.topic_based.topic_port import metadata_partition_for
from tests.support.sim.clock import ManualClock
from tests.support.tier.led_partitions import PARTITIONS, one_in_each
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import Node


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


def test_a_complete_deletion_is_named_only_for_a_topic_that_exists() -> None:
    store = CountingStore()
    node = Node(MemoryTopic(PARTITIONS), ManualClock(), 1, store=store)
    node.manager.lead(None)
    node.turn()
    existing = frozenset({b"T" * 16, b"U" * 16})
    finished, living, _ = one_in_each()
    for partition in (finished, living):
        node.own(Fence(1, 1), partition)
    asked = node.manager.finished_partitions
    assert asked(existing) == []
    for state in PartitionDeleteState:
        node.manager.put_partition_delete(finished, state)
        node.turn()
    assert [one.partition for one in asked(existing)] == [finished]
    assert [one.partition for one in node.manager.led_partitions()] == [living]
    scans = store.scans
    assert asked(frozenset({b"U" * 16})) == []
    assert asked(frozenset({b"T" * 8 + b"x" * 8})) == [], "another topic of the same beginning"
    assert asked(frozenset()) == []
    assert store.scans == scans + 1, "of the one that might have been it"
    node.kill()
    node.manager.lead(None)
    node.turn(5)
    assert [one.partition for one in node.manager.finished_partitions(existing)] == [finished]
    assert [one.partition for one in node.manager.led_partitions()] == [living]


def test_a_topic_whose_deletion_is_complete_takes_few_bytes() -> None:
    rng = Random(3)
    ids = [rng.randbytes(16) for _ in range(20_000)]
    tracemalloc.start()
    packed = PackedIds(ids[:10_000])
    for each in ids[10_000:]:
        packed.add(each)
        packed.add(each)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(each in packed for each in ids)
    assert rng.randbytes(16) not in packed
    assert len(packed) == len(ids)
    assert size < 16 * len(ids)


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
