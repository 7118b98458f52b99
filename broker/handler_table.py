"""Which APIs clients are served, with the parts each of them needs.

What is not in this table is absent from ApiVersions.
"""

from dataclasses import dataclass

from broker.cluster import ClusterView
from broker.config.broker_config import BrokerConfig
from broker.handlers import (
    api_versions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from broker.handlers.holding import Holding
from broker.handlers.registry import Handler, HandlerTable
from broker.live_config import LiveConfig
from broker.registration import BrokerRegistration
from broker.remote.tier import RemoteTier
from broker.replica.manager import ReplicaManager
from broker.topic_creation import TopicCreation
from local_log.log_dirs import LogManager
from metadata_topic.controller.features import SUPPORTED_FEATURES, finalized_features
from metadata_topic.controller.producer_ids import (
    ProducerIdBlock,
    allocate_producer_ids,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.node import MetadataNode
from runtime.clock import Clock
from runtime.dice import Dice
from runtime.executors import Pool
from runtime.metrics import Registry
from runtime.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class HandlerParts:
    """What handlers are made of; `tier` is None without a remote tier."""

    config: BrokerConfig
    live: LiveConfig
    cluster: ClusterView
    creation: TopicCreation
    node: MetadataNode
    registration: BrokerRegistration
    replicas: ReplicaManager
    logs: LogManager
    tier: RemoteTier | None
    clock: Clock
    scheduler: Scheduler
    pool: Pool
    dice: Dice
    metrics: Registry


def build_handlers(parts: HandlerParts) -> HandlerTable:
    """Make the table of a listener for clients."""
    table = HandlerTable()
    for handler in (*_data_handlers(parts), *_admin_handlers(parts)):
        table.add(handler)
    table.add(_api_versions(parts, table))
    return table


def _data_handlers(parts: HandlerParts) -> list[Handler]:
    tier, config, live = parts.tier, parts.config, parts.live
    holding = Holding(parts.clock, parts.scheduler)
    return [
        produce.make(parts.replicas, tier_client_id=None if tier is None else tier.tier_client_id),
        fetch.make(
            parts.replicas,
            limits=fetch.FetchLimits(
                max_bytes=config.fetch_max_bytes,
                session_slots=config.max_incremental_fetch_session_cache_slots,
                remote_wait_ms=lambda: live.current.remote_fetch_max_wait_ms,
            ),
            clock=parts.clock,
            scheduler=parts.scheduler,
            dice=parts.dice,
            remote=tier,
            addresses=parts.cluster.addresses,
        ),
        list_offsets.make(
            parts.replicas,
            clock=parts.clock,
            pool=parts.pool,
            holding=holding,
            remote=tier,
            remote_timeout_ms=lambda: live.current.remote_list_offsets_request_timeout_ms,
        ),
        offset_for_leader_epoch.make(parts.replicas, holding),
        delete_records.make(parts.replicas, parts.pool),
        init_producer_id.make(_block_allocator(parts)),
    ]


def _block_allocator(parts: HandlerParts) -> init_producer_id.AllocateBlock:
    """Ask the controller for producer ids in the name of this life of the broker."""
    used: int | None = None  # by earlier lives; what this one gives is in the metadata

    def decide(image: MetadataImage) -> ControllerResult[ProducerIdBlock]:
        assert used is not None, "looked up before it is asked"
        return allocate_producer_ids(
            image,
            broker_id=parts.config.node_id,
            broker_epoch=parts.registration.epoch,
            used=used,
        )

    async def allocate() -> tuple[int, int]:
        nonlocal used
        if used is None:
            used = max((log.producers.highest_id for log in parts.logs.all()), default=-1)
        block = await parts.node.submit(decide)
        return block.first_id, block.end_id

    return allocate


def _admin_handlers(parts: HandlerParts) -> list[Handler]:
    cluster, config = parts.cluster, parts.config
    auto_create = parts.creation.auto_create if config.auto_create_topics_enable else None
    submit = parts.node.submit
    return [
        metadata.make(cluster, auto_create),
        create_topics.make(parts.creation, parts.live),
        delete_topics.make(cluster, submit, enabled=config.delete_topic_enable),
        describe_configs.make(cluster, parts.live),
        incremental_alter_configs.make(submit, parts.live),
        describe_cluster.make(cluster),
        describe_topic_partitions.make(
            cluster, config.max_request_partition_size_limit, parts.replicas.is_offline
        ),
    ]


def _api_versions(parts: HandlerParts, table: HandlerTable) -> Handler:
    def features() -> api_versions.Features:
        image = parts.cluster.image()
        return api_versions.Features(
            supported=SUPPORTED_FEATURES,
            finalized=finalized_features(image, parts.node.kraft_version),
            epoch=image.provenance.offset,
        )

    return api_versions.make(table, features)
