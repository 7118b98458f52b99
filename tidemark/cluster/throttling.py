"""Moves that take no more than so many bytes a second: Kafka's throttle of followers (KIP-73)."""

from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

import click

from kafka_client.blocking import ClusterError
from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.configs import Operation
from metadata_topic.image.image import ResourceType
from tidemark.cluster.asking import Cluster, RefusedError

RATE: Final = "follower.replication.throttled.rate"
REPLICAS: Final = "follower.replication.throttled.replicas"


class Arrival(NamedTuple):
    """A replica that comes to a broker."""

    topic: str
    partition: int
    broker_id: int


class Throttle:
    """Holds replicas back while they are copied; left, nothing is held back any more.

    Brokers get the rate, topics the names of the replicas. What somebody else has set as a rate of
    these brokers is replaced, and gone afterwards, as with Kafka's tool.
    """

    def __init__(self, cluster: Cluster, rate: int | None) -> None:
        """Set nothing yet.

        Args:
            cluster: is asked.
            rate: bytes a second that all replicas that come to a broker may take; None: no bound.
        """
        self._cluster, self._rate = cluster, rate
        self._brokers: set[int] = set()
        self._arrivals: set[Arrival] = set()

    def hold(self, arrivals: Iterable[Arrival]) -> None:
        """Hold them back; call it before they begin.

        Raises:
            ClusterError: no broker answers, or the controller refuses.
        """
        if self._rate is None:
            return
        new = set(arrivals) - self._arrivals
        for broker_id in sorted({one.broker_id for one in new} - self._brokers):
            self._brokers.add(broker_id)
            self._change_broker(broker_id, Operation.SET, str(self._rate))
        self._arrivals |= new
        self._name(new, Operation.APPEND)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._arrivals:
            return
        try:
            self._name(self._arrivals, Operation.SUBTRACT)
            topics = sorted({one.topic for one in self._arrivals})
            for topic, left in self._cluster.settings(REPLICAS, topics).items():
                if not left:
                    self._change_topic(topic, Operation.DELETE)
            for broker_id in sorted(self._brokers):
                self._change_broker(broker_id, Operation.DELETE)
        except ClusterError as failed:
            brokers = ", ".join(map(str, sorted(self._brokers)))
            click.echo(
                f"the throttle stays, since {failed}. Delete {RATE} of brokers {brokers}, and "
                f"{REPLICAS} of the topics that moved",
                err=True,
            )

    def _name(self, arrivals: Iterable[Arrival], operation: Operation) -> None:
        topics: dict[str, list[str]] = {}
        for one in sorted(arrivals):
            topics.setdefault(one.topic, []).append(f"{one.partition}:{one.broker_id}")
        for topic, replicas in topics.items():
            self._change_topic(topic, operation, ",".join(replicas))

    def _change_topic(self, topic: str, operation: Operation, value: str | None = None) -> None:
        try:
            self._cluster.alter_config(ResourceType.TOPIC, topic, REPLICAS, operation, value)
        except RefusedError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # it is deleted meanwhile
                raise

    def _change_broker(
        self, broker_id: int, operation: Operation, value: str | None = None
    ) -> None:
        self._cluster.alter_config(ResourceType.BROKER, str(broker_id), RATE, operation, value)
