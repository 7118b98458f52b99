"""Tiered topics that are deleted: one is made, lives for a while, and makes way for the next."""

from random import Random
from typing import TYPE_CHECKING, Any

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.replication_world.plan import DOOMED, TopicPlan

if TYPE_CHECKING:
    from tests.support.replication_world.clients import DataClients

FIRST_US = 1_500_000
LOOK_US = 300_000
LIFE_MIN_US = 3_000_000
"""Longer than whoever makes it looks whether it is there."""
ASK_AGAIN_US = 1_000_000
TIMEOUT_MS = 1_500


class DoomedTopics:
    """See the module.

    Attributes:
        removing: the name of the topic whose deletion was asked for; empty: there is none.
    """

    def __init__(self, clients: "DataClients") -> None:
        self.clients, self.world = clients, clients.world
        self.rng = Random(f"replication-removals-{self.world.plan.seed}")
        self.removing = ""
        self._number = 0

    def start(self) -> None:
        """Make the first one soon, where the plan wants any."""
        if self.world.plan.remove_every_ms:
            self._later(FIRST_US, self._make)

    def _later(self, us: int, fn: Any, *args: Any) -> None:
        self.world.at(self.world.now_us + us, fn, *args)

    def _make(self) -> None:
        tier = self.world.plan.tier
        assert tier is not None
        if not self.clients.is_over:
            name = f"{DOOMED}{self._number}"
            self._number += 1
            self.clients.create(name, TopicPlan(1, 3, 2, tier.is_unclean))
            self._watch(name)

    def _watch(self, name: str) -> None:
        if name in self.world.oracle.reference.topics_by_name:
            mean_us = 1_000 * self.world.plan.remove_every_ms
            self._later(LIFE_MIN_US + int(2 * mean_us * self.rng.random()), self._remove, name)
        elif not self.clients.is_over:
            self._later(LOOK_US, self._watch, name)

    def _remove(self, name: str) -> None:
        """Ask until it is gone; when all is over, what was asked for is still seen through."""
        if self.clients.is_over and not self.removing:
            return
        self.removing = name
        if name not in self.world.oracle.reference.topics_by_name:
            self.removing = ""
            self._later(int(4 * LOOK_US * self.rng.random()), self._make)
            return
        self._later(ASK_AGAIN_US, self._remove, name)
        node = self.clients.line.some_broker()
        if node is not None:
            cls = request(ApiKey.DELETE_TOPICS).cls
            asked = cls.Topics(name=name, topic_id=ZERO_UUID)
            question = cls(topics=[asked], timeout_ms=TIMEOUT_MS)
            self.clients.line.ask(node, ApiKey.DELETE_TOPICS, question, lambda _answer: None)
