"""The descriptors that this broker has left, for the controller that places replicas on it."""

from collections.abc import Mapping

from broker.node.broker_life import BrokerLife
from broker.replica.manager import ReplicaManager
from metadata_topic.quorum.node import MetadataNode
from runtime.disk_errors import descriptors_left


class BrokerDescriptors:
    """What brokers have left, this one by a look at the moment; the `Descriptors` of a creation.

    Others report over the wire. What is asked here counts while this node's own controller is the
    active one.
    """

    def __init__(self, node: MetadataNode, life: BrokerLife, replicas: ReplicaManager) -> None:
        """Take the parts; nothing is asked yet."""
        self._node, self._life, self._replicas = node, life, replicas

    @property
    def left(self) -> int:
        """How many files this broker may open before it uses its reserve, at least 0.

        Replicas of its image that wait for a disk open theirs soon, and are subtracted.
        """
        return max(0, descriptors_left() - self._replicas.backlog)

    def free_descriptors(self) -> Mapping[int, int]:
        """How many more replicas brokers take, by id; one that is not in it has no bound."""
        node, brokers = self._node, self._node.brokers
        offset = node.image.provenance.offset
        brokers.report_descriptors(node.node_id, self._life.epoch, self.left, offset)
        return brokers.free_descriptors()

    def replicas_placed(self, replicas: Mapping[int, int], end_offset: int) -> None:
        """Note how many replicas brokers get by records below `end_offset` (exclusive)."""
        self._node.brokers.replicas_placed(replicas, end_offset)
