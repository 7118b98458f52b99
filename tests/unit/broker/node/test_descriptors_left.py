"""What a broker says of its own descriptors, to the controller in its process and elsewhere."""

from types import SimpleNamespace
from typing import Any

from broker.node.broker_life import BrokerDescriptors
from runtime.executors import InlinePool
from tests.support.worlds.controlled_brokers import clustered
from tests.support.worlds.naive_quorum import PLAIN


async def test_many_creations_do_not_take_the_same_descriptors_of_the_own_broker() -> None:
    """Between its decision and its image a replica is known to the controller alone."""
    cluster = clustered(PLAIN, own_broker_id=1)
    epoch = cluster.register(1).response
    node: Any = SimpleNamespace(
        node_id=1, brokers=cluster.control, image=cluster.quorum.loop.decided_image
    )
    replicas: Any = SimpleNamespace(hosting=SimpleNamespace(backlog=0))
    life: Any = SimpleNamespace(epoch=epoch)
    free = 100
    own = BrokerDescriptors(node, life, replicas, lambda: free, InlinePool())
    assert own.free_descriptors() == {1: free}
    end_offset = node.image.provenance.end_offset + 1
    own.replicas_placed({1: 5}, end_offset)
    assert own.free_descriptors() == {1: free - 5}
    cluster.beat(1)
    node.image, replicas.hosting.backlog = (
        cluster.quorum.loop.decided_image,
        5,
    )  # the broker knows of them
    assert node.image.provenance.end_offset >= end_offset
    assert own.free_descriptors() == {1: free - 5}
    replicas.hosting.backlog, free = 0, 95  # their files are open
    assert own.free_descriptors() == {1: 95}
    replicas.hosting.backlog = 96
    assert await own.left() == 0, "-1 would say that nothing is reported"
