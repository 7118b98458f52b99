"""The askers of a metadata partition: who shares a question, and since when they wait."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_protocol.types import TopicIdPartition
from rlmm.testing import PARTITION
from rlmm.topic_based.end_reads import ASK_AGAIN_MS, EndReads
from tests.support.sim.clock import ManualClock
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import Node

OLD, NEW = object(), object()
FOLLOWED = PARTITION, PARTITION._replace(partition=1)


class Port:
    """Holds each question until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[Callable[[int | None], None]] = []

    def ask_end(self, _partition: int, on_done: Callable[[int | None], None]) -> None:
        self.asked.append(on_done)


def test_askers_that_come_while_the_log_is_asked_share_the_next_question() -> None:
    """What was asked before they came says nothing to them."""
    port: Any = Port()
    reads = EndReads()
    reached: list[int] = []
    reads.want(OLD, lambda: reached.append(-1))
    reads.ask(port, 0, 0, 0)
    for number in range(200):  # followed partitions, one a turn
        reads.want(NEW, lambda number=number: reached.append(number))  # type: ignore[misc]
        reads.ask(port, 0, 0, number)
    assert len(port.asked) == 1
    port.asked[0](7)
    for read in reads.take_reached(7):
        read.reached()
    assert reached == [-1]
    reads.ask(port, 0, 7, 300)
    port.asked[1](8)
    assert (len(port.asked), reads.take_reached(7)) == (2, [])
    for read in reads.take_reached(8):
        read.reached()
    assert reached == [-1, *range(200)]


def test_the_asker_that_has_waited_longest_counts() -> None:
    port: Any = Port()
    reads = EndReads()
    for now_ms, asker in ((1_000, OLD), (2_000, NEW)):
        reads.want(asker, lambda: None)
        reads.ask(port, 0, 0, now_ms)
    assert reads.waits_since_ms == 1_000
    reads.drop(OLD)
    reads.ask(port, 0, 0, 3_000)
    assert reads.waits_since_ms == 2_000


def test_a_question_that_failed_is_waited_for_since_the_first_one() -> None:
    port: Any = Port()
    reads = EndReads()
    reads.want(OLD, lambda: None)
    for now_ms in (1_000, 1_000 + ASK_AGAIN_MS):
        reads.ask(port, 0, 0, now_ms)
        port.asked.pop()(None)
    reads.ask(port, 0, 0, 9_000)
    assert reads.waits_since_ms == 1_000
    port.asked.pop()(0)
    reads.ask(port, 0, 0, 9_001)
    assert reads.waits_since_ms is None


def test_a_log_that_was_cut_is_asked_anew_and_waited_for_since_then() -> None:
    port: Any = Port()
    reads = EndReads()
    reads.want(OLD, lambda: None)
    reads.ask(port, 0, 0, 1_000)
    reads.start_over()
    reads.ask(port, 0, 0, 2_000)
    assert (len(port.asked), reads.waits_since_ms) == (2, 2_000)
    port.asked[0](0)
    reads.ask(port, 0, 0, 3_000)
    assert reads.waits_since_ms == 2_000, "the answer of before the cut counts no longer"


@pytest.fixture
def node() -> Node:
    """Follows two partitions, and has nothing to do."""
    node = Node(MemoryTopic(), ManualClock(), 1)
    for partition in FOLLOWED:
        node.manager.follow(partition)
    node.turn()
    return node


def caught_up(node: Node, partition: TopicIdPartition = PARTITION) -> None:
    done = node.manager.catch_up(partition)
    node.turn()
    assert done.exception(0) is None


def test_who_catches_up_again_and_again_waits_for_no_idle_poll(node: Node) -> None:
    """A poll does not end when somebody asks: as long as it may wait, so long may they."""
    idle_ms = node.port.wait_ms
    caught_up(node)
    node.clock.advance(idle_ms)
    for _ in range(5):  # a consumer that reads and then waits half a second for more
        caught_up(node)
        node.clock.advance(500)
        node.turn(1)
        assert node.port.wait_ms < idle_ms / 10
    node.clock.advance(2_000)
    node.turn(1)
    assert node.port.wait_ms == idle_ms


def test_many_that_catch_up_once_each_keep_no_thread_busy(node: Node) -> None:
    idle_ms = node.port.wait_ms
    for partition in FOLLOWED:
        caught_up(node, partition)
        assert node.port.wait_ms == idle_ms
