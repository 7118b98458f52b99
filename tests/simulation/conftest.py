"""Two brokers on one metadata topic; whether stories are written again."""

import pytest

from tests.support.sim.clock import ManualClock
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import Node


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-stories", action="store_true", help="write what happens now")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def topic() -> MemoryTopic:
    return MemoryTopic(1)


@pytest.fixture
def a(topic: MemoryTopic, clock: ManualClock) -> Node:
    return Node(topic, clock, 1)


@pytest.fixture
def b(topic: MemoryTopic, clock: ManualClock) -> Node:
    return Node(topic, clock, 2)
