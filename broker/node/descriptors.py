"""The descriptors that this broker has left, for the controller that places replicas on it."""

from collections.abc import Callable, Mapping

from broker.node.broker_life import BrokerLife
from broker.replica.manager import ReplicaManager
from metadata_topic.quorum.node import MetadataNode
from runtime.executors import Pool


class BrokerDescriptors:
    """What brokers have left, this one by a look at the moment; the `Descriptors` of a creation.

    Others report over the wire. What is asked here counts while this node's own controller is the
    active one.
    """

    def __init__(
        self,
        node: MetadataNode,
        life: BrokerLife,
        replicas: ReplicaManager,
        count: Callable[[], int],
        pool: Pool,
    ) -> None:
        """Take the parts.

        Args:
            node: has the image that this broker knows.
            life: of this broker.
            replicas: know which of them wait for a disk.
            count: says how many files new partitions may open.
            pool: counts for the heartbeats.
        """
        self._node, self._life, self._replicas = node, life, replicas
        self._count, self._pool = count, pool

    async def left(self) -> int:
        """How many files of new partitions this broker may open, at least 0.

        Replicas of the image at the call that wait for a disk open theirs soon, and are subtracted.
        Before Linux 6.2 the open ones are counted one by one, so not on the event loop.
        """
        backlog = self._replicas.backlog
        return max(0, await self._pool.run(self._count) - backlog)

    def free_descriptors(self) -> Mapping[int, int]:
        """How many more replicas brokers take, by id; one that is not in it has no bound."""
        node, brokers = self._node, self._node.brokers
        left = max(0, self._count() - self._replicas.backlog)
        offset = node.image.provenance.offset
        brokers.report_descriptors(node.node_id, self._life.epoch, left, offset)
        return brokers.free_descriptors()

    def replicas_placed(self, replicas: Mapping[int, int], end_offset: int) -> None:
        """Note how many replicas brokers get by records below `end_offset` (exclusive)."""
        self._node.brokers.replicas_placed(replicas, end_offset)
