"""Roles are asked for without waiting for the thread that reads the topic."""

import threading

import pytest

from rlmm.api import MetadataNotReadyError, MetadataWriteTimeoutError
from rlmm.testing import PARTITION
from tests.support.sim.clock import ManualClock
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import A1, B2, S0, Node


@pytest.fixture
def node() -> Node:
    node = Node(MemoryTopic(1), ManualClock(), 1)
    node.turn()
    return node


def test_whoever_asks_for_a_role_does_not_wait_for_a_turn(node: Node) -> None:
    node.own(A1)
    engine = node.manager._engine
    assert engine is not None

    def ask() -> None:
        node.manager.own(PARTITION, B2)
        node.manager.release(PARTITION)
        node.manager.follow(PARTITION)

    with engine._lock:
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(30)
        assert not asking.is_alive()


def test_a_role_is_over_as_soon_as_another_is_asked_for(node: Node) -> None:
    node.own(A1)
    assert node.manager.is_ready(PARTITION)
    node.manager.follow(PARTITION)
    assert not node.manager.is_ready(PARTITION)
    late = node.manager.add(S0, A1, 5)
    assert isinstance(late.exception(0), MetadataNotReadyError)
    caught_up = node.manager.catch_up(PARTITION)
    assert isinstance(caught_up.exception(0), MetadataNotReadyError)


def test_of_roles_asked_for_before_a_turn_the_last_begins(node: Node) -> None:
    first = node.manager.own(PARTITION, A1)
    second = node.manager.own(PARTITION, B2)
    assert isinstance(first.exception(0), MetadataNotReadyError)
    written = len(node.topic.logs[0])
    node.turn(6)
    assert second.exception(0) is None
    assert len(node.topic.logs[0]) == written + 3, "one barrier"


def test_no_barrier_is_written_for_a_role_that_was_let_go(node: Node) -> None:
    engine = node.manager._engine
    assert engine is not None
    node.manager.lead([0])
    node.turn()
    owned = node.manager.own(PARTITION, A1)
    engine._take_roles()  # it has begun, and has written nothing yet
    node.manager.follow(PARTITION)
    engine._advance_roles()
    assert not engine._tracked[0].writes
    node.turn()
    assert isinstance(owned.exception(0), MetadataNotReadyError)


def test_a_write_of_a_role_that_ends_has_an_unknown_outcome(node: Node) -> None:
    node.own(A1)
    written = node.manager.add(S0, A1, 5)
    node.manager.release(PARTITION)
    node.turn(1)
    assert isinstance(written.exception(0), MetadataWriteTimeoutError)
