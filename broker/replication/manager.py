"""Assigns partitions to fetchers: `num.replica.fetchers` of them for each leader.

A listener of `ReplicaEvents`, and a subscriber of the image for the addresses of leaders. A
partition that another broker leads is followed from the event on, so only after its directory is in
the metadata. Any other event of it ends that.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final
from zlib import crc32

from broker.config.broker_config import BrokerConfig
from broker.replica.hosting import ReplicaEvents
from broker.replica.partition import Partition
from broker.replication.fetch_wire import FetchTerms
from broker.replication.fetcher import FetcherSettings, ReplicaFetcher
from broker.replication.throttle import FollowerThrottle
from broker.replication.tier_bootstrap import TierBootstraps
from kafka_client.connection import Connection
from kafka_client.exchange import ConnectionSettings
from kafka_client.transport import Address, Network
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from runtime.health_reasons import HealthLine, HealthReason
from runtime.metrics import Labelled, Registry
from runtime.ports import Ports

_SHOWN_MAX: Final = 20
_HEAD_BYTES: Final = 1 << 20
"""Of an answer, besides its records."""
_CLIENT: Final = ("Replica",)

FetcherId = tuple[int, int]
"""The leader's broker id, and a number below `num.replica.fetchers`."""


class ReplicaFetchers:
    """The fetchers of one broker; use it from the event loop's thread only."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        bootstraps: TierBootstraps,
        ports: Ports,
        network: Network | None = None,
    ) -> None:
        """Follow nothing yet.

        Args:
            config: The present settings; most are read at the start only.
            image: Committed metadata.
            broker_epoch: Of this broker's present incarnation.
            bootstraps: Of partitions that begin again from the remote tier; with the logs.
            ports: Clock, scheduler and pools.
            network: Of the connections; None: TCP.
        """
        self._config, self._image, self._broker_epoch = config, image, broker_epoch
        self._bootstraps, self._ports, self._network = bootstraps, ports, network
        self._node_id = config().node_id
        self._throttle = FollowerThrottle(
            self._node_id,
            ports.clock,
            lambda: self._config().follower_replication_throttled_rate,
        )
        self._fetchers: dict[FetcherId, ReplicaFetcher] = {}
        self._by_partition: dict[Partition, ReplicaFetcher] = {}
        self._is_stopping = False

    # -- partitions

    def on_events(self, events: ReplicaEvents) -> None:
        """Follow the partitions that are led elsewhere from now on, and no others."""
        for partition in chain(events.led, events.gone):
            self._let_go(partition)
        for partition in events.followed:
            self._follow(partition)
        for partition in events.configured:
            fetcher = self._by_partition.get(partition)
            if fetcher is not None:  # the new settings may have raised its log start
                partition.log.lease.when_here(partial(fetcher.keep_log_start, partition))

    def _follow(self, partition: Partition) -> None:
        fetcher = None if self._is_stopping else self._fetcher_of(partition)
        if self._by_partition.get(partition) is not fetcher:
            self._let_go(partition)
        if fetcher is not None:
            self._by_partition[partition] = fetcher
            fetcher.follow(partition)

    def _let_go(self, partition: Partition) -> None:
        fetcher = self._by_partition.pop(partition, None)
        if fetcher is not None:
            fetcher.let_go(partition)
            self._bootstraps.forget(partition)

    def _fetcher_of(self, partition: Partition) -> ReplicaFetcher | None:
        """The fetcher for its leader; None where it has no leader.

        DIFFERS: Kafka moves all partitions when `num.replica.fetchers` changes.
        """
        leader_id, known = partition.leader_id, self._by_partition.get(partition)
        if leader_id < 0 or leader_id == self._node_id:
            return None
        if known is not None and known.leader_id == leader_id:
            return known
        name = f"{partition.topic}-{partition.partition}".encode()
        fetcher_id = leader_id, crc32(name) % self._config().num_replica_fetchers
        found = self._fetchers.get(fetcher_id)
        if found is None:
            found = self._fetchers[fetcher_id] = self._make(fetcher_id)
        return found

    def _make(self, fetcher_id: FetcherId) -> ReplicaFetcher:
        config, (leader_id, number) = self._config(), fetcher_id
        response_bytes = config.replica_fetch_response_max_bytes
        # One batch comes whole at any size: the leader took it in a request.
        answer_bytes_max = response_bytes + config.socket_request_max_bytes + _HEAD_BYTES
        connecting = ConnectionSettings(
            client_id=f"broker-{self._node_id}-fetcher-{number}",
            answer_bytes_max=answer_bytes_max,
            held_bytes_max=answer_bytes_max,
            request_timeout_ms=config.replica_socket_timeout_ms,
            idle_ms_max=config.replica_socket_timeout_ms,
        )
        made = ReplicaFetcher(
            leader_id,
            connect=lambda address: Connection(address, connecting, self._ports, self._network),
            settings=FetcherSettings(
                terms=FetchTerms(
                    node_id=self._node_id,
                    wait_ms=config.replica_fetch_wait_max_ms,
                    min_bytes=config.replica_fetch_min_bytes,
                    max_bytes=response_bytes,
                    partition_bytes=config.replica_fetch_max_bytes,
                ),
                throttle=self._throttle,
                backoff_ms=config.replica_fetch_backoff_ms,
                timeout_ms=config.replica_socket_timeout_ms,
                from_last_tiered=self._is_from_last_tiered,
            ),
            broker_epoch=self._broker_epoch,
            bootstraps=self._bootstraps,
            ports=self._ports,
        )
        made.reach(self._address_of(leader_id))
        return made

    def _is_from_last_tiered(self) -> bool:
        return self._config().follower_fetch_last_tiered_offset_enable

    # -- addresses of leaders

    def on_image(self, _image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Take over changed addresses of leaders; forget the fetchers of brokers that left."""
        changed = None if delta is None else delta.changed_brokers
        if changed is not None and not changed:
            return
        for fetcher_id, fetcher in list(self._fetchers.items()):
            leader_id, _ = fetcher_id
            if changed is None or leader_id in changed:
                address = self._address_of(leader_id)
                fetcher.reach(address)
                if address is None and fetcher.is_idle:
                    del self._fetchers[fetcher_id]

    def _address_of(self, broker_id: int) -> Address | None:
        broker, name = (
            self._image().brokers.get(broker_id),
            self._config().inter_broker_listener_name,
        )
        endpoints = () if broker is None else broker.endpoints
        return next(((one.host, one.port) for one in endpoints if one.name == name), None)

    async def stop(self) -> None:
        """Follow nothing more; returns when no thread has a log of a followed partition."""
        self._is_stopping = True
        self._by_partition.clear()
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        await self._bootstraps.stop()

    # -- health and metrics

    def problems(self) -> Sequence[HealthLine]:
        """Leaders that give no answer, and partitions that cannot be followed, up to a page."""
        silent = (
            HealthReason.LEADER_SILENT.line(leader=one.leader_id, why=one.trouble)
            for one in self._fetchers.values()
            if one.trouble and len(one)
        )
        failed = (why for one in self._fetchers.values() for why in one.failed.values())
        waiting = self._bootstraps.problems()
        return list(islice(chain(silent, waiting, failed), _SHOWN_MAX))

    @property
    def failed_count(self) -> int:
        """How many partitions cannot be followed."""
        return sum(len(one.failed) for one in self._fetchers.values())

    def lag_max(self) -> Iterator[Labelled | None]:
        """The highest lag of a partition, in records; None between slices of the work."""
        most = 0
        for fetcher in list(self._fetchers.values()):
            most = max(most, max(fetcher.lags.values(), default=0))
            yield None
        yield _CLIENT, most

    def register(self, metrics: Registry) -> None:
        """Register the gauges, under Kafka's names where Kafka has them."""
        metrics.gauge(
            "kafka_server_ReplicaFetcherManager_MaxLag",
            "Committed records that the partition lacks that is furthest behind its leader.",
            ("clientId",),
            self.lag_max,
        )
        metrics.gauge(
            "kafka_server_ReplicaFetcherManager_FailedPartitionsCount",
            "Partitions that cannot follow their leader.",
            ("clientId",),
            lambda: {_CLIENT: self.failed_count},
        )
        metrics.gauge(
            "tidemark_replica_bootstraps",
            "Followed partitions that begin again by state from the remote tier.",
            fn=lambda: self._bootstraps.count,
        )
