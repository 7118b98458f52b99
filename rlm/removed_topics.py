"""The removed topics as the remover sees them: over the link, in the metadata log of the broker."""

from collections.abc import Collection

from rlm.broker_port import BrokerPort
from rlmm.topic_based.removal_policy import ClusterImage


class RemovedTopicsOfBroker:
    """See `rlmm.topic_based.remover.RemovedTopics`; fails as the link does."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker

    def image(self) -> ClusterImage | None:
        """The newest committed image of the broker."""
        answer = self._broker.image()
        return ClusterImage(
            frozenset(answer.topic_ids),
            frozenset(answer.removed_topic_ids),
            answer.cluster_id,
            answer.removals_are_kept,
        )

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """Nothing is left of these: they leave the list."""
        self._broker.topics_emptied(topic_ids)

    def keep_removals(self, marked: Collection[bytes]) -> None:
        """Go by the list alone from here on, with these ids on it."""
        self._broker.keep_removals(marked)
