"""Tiers of brokers that delete by what they are told: nothing of a topic that is there goes.

A store has something of each topic that is committed. A tier lists it, asks its broker for a
confirmed image, and deletes what was listed and is not in that image.
"""

from typing import TYPE_CHECKING, Any

from kafka_protocol.errors import ApiError

if TYPE_CHECKING:
    from tests.support.nodes_world.node import ClusterNode
    from tests.support.nodes_world.world import NodesWorld


class Tiers:
    """See the module.

    Attributes:
        stored: ids of topics of which there is something.
        answers: how many questions were answered.
        deleted: ids of topics of which nothing is left.
    """

    def __init__(self, world: "NodesWorld") -> None:
        self.world = world
        self.stored: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.answers = 0
        self._is_over = False
        world.oracle.listeners.append(self._committed)

    def start(self) -> None:
        """Let each tier begin."""
        for node in self.world.brokers:
            self._later(node)

    def stop(self) -> None:
        """Ask nothing more."""
        self._is_over = True

    def _committed(self, epoch: int, offset: int, record: Any) -> None:
        if record.name == "TopicRecord":
            self.stored.add(record.value.topic_id)

    def _later(self, node: "ClusterNode") -> None:
        world = self.world
        pause_us = 1 + int(world.work_rng.random() * 2_000 * world.plan.tier_every_ms)
        if not self._is_over:
            world.at(world.now_us + pause_us, self._ask, node)

    def _ask(self, node: "ClusterNode") -> None:
        broker = node.broker
        if broker is not None and broker.serves and not node.closing and node.process is not None:
            node.on_loop(lambda: self._asks(node))
        self._later(node)

    def _asks(self, node: "ClusterNode") -> None:
        assert node.process is not None
        if node.paused_until <= self.world.now_us:
            node.process.loop.begin(self._look(node))

    async def _look(self, node: "ClusterNode") -> None:
        listed = frozenset(self.stored)
        promised = self.world.oracle.reference.provenance.end_offset
        broker = node.broker
        assert broker is not None
        try:
            await broker.confirmed.confirm()
        except ApiError:
            return  # no answer, and the tier asks later
        image = node.metadata.image
        self.answers += 1
        if image.provenance.end_offset < promised:
            self.world.breaks(
                "a confirmed image has all that was committed before the question",
                f"{node}: {image.provenance.end_offset}, {promised}",
            )
        for topic_id in sorted(listed - image.topics_by_id.keys()):
            self.stored.discard(topic_id)
            self.deleted.add(topic_id)
            if topic_id in self.world.oracle.reference.topics_by_id:
                what = f"{node}: {topic_id.hex()} by an image to {image.provenance.end_offset}"
                self.world.breaks("nothing stored of a topic that is there is deleted", what)
