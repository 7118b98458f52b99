"""Many user partitions: a turn does what is due, and never walks all of them."""

from collections.abc import Iterator
from concurrent.futures import Future
from random import Random

import pytest

from kafka_protocol.types import TopicIdPartition
from rlmm.api import Fence
from rlmm.events import MetadataEvent, SegmentAdded, Stamp
from rlmm.store import PartitionKey
from rlmm.testing import segment
from rlmm.topic_based.engine import BARRIER_COST, BARRIERS_COST_MAX
from rlmm.topic_based.roles import Role
from rlmm.topic_based.writes import Write, Writes
from tests.support.sim.clock import ManualClock
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import A1, Node

COUNT = 3 * BARRIERS_COST_MAX // BARRIER_COST


def partitions(count: int = COUNT) -> list[TopicIdPartition]:
    return [TopicIdPartition(b"T" * 16, number, "orders") for number in range(count)]


@pytest.fixture
def node() -> Node:
    node = Node(MemoryTopic(1), ManualClock(), 1)
    node.turn()
    return node


def test_the_barriers_of_many_are_written_in_several_turns(node: Node) -> None:
    owned = [node.manager.own(each, A1) for each in partitions()]
    written = []
    for _ in range(6):
        before = len(node.topic.logs[0])
        node.turn(1)
        written.append(len(node.topic.logs[0]) - before)
    node.turn(5)
    assert all(each.done() for each in owned)
    a_turns = BARRIERS_COST_MAX // BARRIER_COST
    assert max(written) == 3 * a_turns, "three records each, of as many as one turn takes"
    assert sum(written) == 3 * COUNT


class NeverWalked(dict[PartitionKey, Role]):
    """Roles that are looked up one by one only."""

    def values(self) -> object:  # type: ignore[override]
        raise AssertionError("a turn walks all roles")

    items = __iter__ = values  # type: ignore[assignment]


def test_a_turn_walks_no_roles_that_have_nothing_due(node: Node) -> None:
    owned = [node.manager.own(each, A1) for each in partitions(20)]
    node.turn(6)
    assert all(each.done() for each in owned)
    engine = node.manager._engine
    assert engine is not None
    tracked = engine._tracked[0]
    tracked.roles, engine._roles = NeverWalked(tracked.roles), NeverWalked(engine._roles)
    node.turn()
    assert not tracked.without_barrier
    one = segment(1, 0, 9, partition=partitions(1)[0])
    added = node.manager.add(one, A1, 5)
    node.turn()
    assert added.result(0) is None


def event_of(rng: Random) -> MetadataEvent:
    partition = TopicIdPartition(b"T" * 16, rng.randrange(3), rng.choice(["a", "b"]))
    return SegmentAdded(segment(1, 0, 9, partition=partition), Stamp(Fence(rng.randrange(3), 1)))


@pytest.mark.parametrize("seed", range(20))
def test_writes_are_found_as_by_a_walk(seed: int) -> None:
    rng, writes, naive = Random(seed), Writes[Role](), list[Write[Role]]()
    roles: list[Role | None] = [None]
    roles += [Role(each, A1, Future()) for each in partitions(3)]
    for _ in range(60):
        match rng.randrange(4):
            case 0 | 1:
                write = Write(event_of(rng), rng.choice(roles), None, 0)
                writes.add(write)
                naive.append(write)
            case 2 if naive:
                write = naive.pop(rng.randrange(len(naive)))
                writes.remove(write)
                assert write not in writes
            case _ if rng.random() < 0.2:
                role = rng.choice(roles)
                assert writes.take_of(role) == [each for each in naive if each.role is role]
                naive = [each for each in naive if each.role is not role]
        assert list(writes) == naive
        asked = event_of(rng)
        names = asked.topic_id_partition.topic_id, asked.topic_id_partition.partition
        assert writes.await_event(asked) == any(
            each.event.stamp.fence == asked.stamp.fence
            and (each.event.topic_id_partition.topic_id, each.event.topic_id_partition.partition)
            == names
            for each in naive
        )


def is_due(write: Write[Role], position: int, now_ms: int) -> bool:
    is_passed = write.offset is not None and write.offset < position
    return is_passed or write.failure is not None or write.deadline_ms <= now_ms


@pytest.mark.parametrize("seed", range(20))
def test_writes_that_are_due_are_found_as_by_a_walk(seed: int) -> None:
    rng, writes, naive = Random(seed), Writes[Role](), list[Write[Role]]()
    unanswered, place, position, now_ms = list[Write[Role]](), 0, 0, 0
    for _ in range(200):
        now_ms += rng.choice([0, 1])
        match rng.randrange(5):
            case 0 | 1:
                write = Write[Role](event_of(rng), None, None, now_ms + 20)
                writes.add(write)
                naive.append(write)
                unanswered.append(write)
            case 2 if unanswered:
                write = unanswered.pop(rng.randrange(len(unanswered)))
                place += 1
                if rng.random() < 0.2:
                    write.failure = "the disk is full"
                else:
                    write.offset = rng.choice([place, place, -1])
                writes.answered(write)
            case 3:
                position = rng.randint(position, place + 1)
            case 4 if naive and rng.random() < 0.3:
                write = naive.pop(rng.randrange(len(naive)))
                writes.remove(write)
        due = writes.take_due(position, now_ms)
        assert due == [each for each in naive if is_due(each, position, now_ms)]
        for write in due:
            writes.remove(write)
            naive.remove(write)


class LookedAt(dict[Write[Role], None]):
    """Writes, and how many of them were looked at."""

    count = 0

    def __iter__(self) -> Iterator[Write[Role]]:
        for write in super().__iter__():
            self.count += 1
            yield write


def test_writes_that_wait_are_not_walked() -> None:
    writes, rng = Writes[Role](), Random(1)
    for _ in range(20):
        writes.add(Write(event_of(rng), None, None, 1))
    looked_at = writes._writes = LookedAt(writes._writes)
    assert writes.take_due(0, 0) == []
    assert looked_at.count == 1
