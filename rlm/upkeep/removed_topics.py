"""The removed topics as the remover sees them: over the link, in the metadata log of the broker."""

from collections.abc import Collection
from concurrent.futures import TimeoutError as FutureTimeoutError

from rlm.link.endpoint import LinkFailureError
from rlm.upkeep.broker_port import BrokerPort
from rlmm.topic_based.removal_policy import ClusterImage
from rlmm.topic_based.removal_ports import NotTakenError


class RemovedTopicsOfBroker:
    """See `rlmm.topic_based.removal_ports.RemovedTopics`; fails as the link does."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker

    def image(self) -> ClusterImage | None:
        """The newest committed image of the broker."""
        answer = self._broker.image()
        return ClusterImage(
            frozenset(answer.topic_ids),
            frozenset(answer.removed_topic_ids),
            answer.cluster_id,
        )

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """Nothing is left of these: they leave the list."""
        try:
            self._broker.topics_emptied(topic_ids)
        except LinkFailureError as error:
            raise NotTakenError(str(error)) from error
        except FutureTimeoutError as error:
            raise NotTakenError("the broker does not answer") from error
