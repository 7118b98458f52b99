"""Schedules the remover of deleted topics: when it looks, and which partitions get a thread."""

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from kafka_protocol.types import TopicIdPartition
from rlm.link.endpoint import LinkFailureError
from rlm.maintenance.broker_port import BrokerPort
from rlm.workers import EXPIRATION_POOL, Workers
from rlmm.topic_based.removal_policy import ClusterImage
from rlmm.topic_based.removal_ports import NotTakenError

if TYPE_CHECKING:  # the remover is loaded with a manager that needs it
    from rlmm.topic_based.remover import Remover

log = logging.getLogger(__name__)


class Removals:
    """Runs the remover in a pool, if the metadata manager has one.

    Belongs to the tier's thread. One look runs at a time; a request for another is kept. The found
    partitions are removed in parallel, each by one thread at a time. They take at most half of the
    pool, so that led partitions expire as well. A partition whose slice ended before all was done
    queues behind the others. A slice that is abandoned because a plugin call hangs makes room for
    the next.
    """

    def __init__(
        self, remover: "Remover | None", workers: Workers, may_write: Callable[[], bool]
    ) -> None:
        """Run nothing before `wake`; `may_write`: whether the store may be written to."""
        self._remover, self._workers, self._may_write = remover, workers, may_write
        self._is_looking = self._again = False
        self._waiting: dict[TopicIdPartition, None] = {}
        self._running: dict[TopicIdPartition, int] = {}
        self._slices = 0

    def wake(self) -> None:
        """Look for partitions to remove, now or when the present look ends."""
        if self._remover is None or not self._may_write():
            return
        if self._is_looking:
            self._again = True
            return
        self._is_looking, self._again = True, False
        self._workers.run(EXPIRATION_POOL, self._remover.look, self._looked)

    def _looked(
        self, found: Sequence[TopicIdPartition] | None, error: BaseException | None
    ) -> None:
        self._is_looking = False
        if error is not None:
            log.warning("looking for deleted topics failed and is tried again: %s", error)
        for partition in found or ():
            self._waiting.setdefault(partition)
        self._start()
        if self._again:
            self.wake()

    def _start(self) -> None:
        """Start slices of waiting partitions, as far as there are threads."""
        if not self._may_write():
            self._waiting.clear()  # the next look finds them again
        while len(self._running) < max(1, self._workers.threads(EXPIRATION_POOL) // 2):
            partition = next((one for one in self._waiting if one not in self._running), None)
            if partition is None:
                return
            del self._waiting[partition]
            self._run_slice(partition)

    def _run_slice(self, partition: TopicIdPartition) -> None:
        remover = self._remover
        assert remover is not None, "it has found the partition"
        self._slices += 1
        number = self._running[partition] = self._slices

        def ended(continues: bool | None, error: BaseException | None) -> None:
            if error is not None:
                name = partition.topic_partition
                log.warning("removing %s failed and is tried again: %s", name, error)
            if self._running.get(partition) != number:
                return  # it was abandoned before
            del self._running[partition]
            if continues:
                self._waiting.pop(partition, None)
                self._waiting[partition] = None  # behind the others
            self._start()

        def given_up() -> None:
            """A plugin call hangs: this slice does nothing more."""
            ended(False, None)

        self._workers.run(EXPIRATION_POOL, lambda: remover.remove(partition, given_up), ended)


class RemovedTopicsOfBroker:
    """The broker as `rlmm.topic_based.removal_ports.RemovedTopics`; fails as the link does."""

    def __init__(self, broker: BrokerPort) -> None:
        self._broker = broker

    def image(self) -> ClusterImage | None:
        """The newest committed image of the broker."""
        answer = self._broker.image()
        return ClusterImage(
            frozenset(answer.topic_ids),
            frozenset(answer.removed_topic_ids),
            answer.cluster_id,
            answer.removals_are_listed,
        )

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """Nothing is left of these topics: they leave the list."""
        try:
            self._broker.topics_emptied(topic_ids)
        except LinkFailureError as error:
            raise NotTakenError(str(error)) from error
        except FutureTimeoutError as error:
            raise NotTakenError("the broker does not answer") from error
