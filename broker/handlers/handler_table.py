"""The APIs of listeners for clients; an API is registered here only.

Each module in the list is one API: its docstring lists the versions, its `make` builds the handler
from the broker's parts. ApiVersions names only APIs in the list.
"""

from dataclasses import replace
from typing import Final, Protocol

from broker.handlers import (
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    unregister_broker,
    update_features,
)
from broker.handlers.forwarded import Forwarded
from broker.handlers.parts import HandlerParts
from broker.handlers.remote_data_wishes import RemoteDataWishes
from broker.handlers.restored_partitions import RestoredPartitions
from broker.network.dispatch import decoders
from broker.network.registry import DecodedHandler, Handler, HandlerTable
from broker.replication.restoring import PartitionRestoring
from kafka_protocol.wire.api_keys import ApiKey


class Api(Protocol):
    """A module that serves one API."""

    __name__: str

    def make(self, parts: HandlerParts) -> Handler:
        """Build the API's handler."""
        ...


APIS: Final[tuple[Api, ...]] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    api_versions,
    create_topics,
    create_partitions,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    describe_quorum,
    incremental_alter_configs,
    alter_configs,
    describe_cluster,
    describe_topic_partitions,
    find_coordinator,
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    offset_commit,
    offset_fetch,
    offset_delete,
    describe_groups,
    list_groups,
    delete_groups,
    consumer_group_heartbeat,
    describe_acls,
    create_acls,
    delete_acls,
    describe_log_dirs,
    alter_replica_log_dirs,
    list_config_resources,
    unregister_broker,
    elect_leaders,
    update_features,
    add_raft_voter,
    remove_raft_voter,
    alter_partition_reassignments,
    list_partition_reassignments,
)


FORWARDED: Final = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.DESCRIBE_QUORUM,
    ApiKey.UNREGISTER_BROKER, ApiKey.ELECT_LEADERS, ApiKey.UPDATE_FEATURES,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
})  # fmt: skip
"""APIs of the active controller; requests are forwarded to it while it is another process."""


def build_handlers(parts: HandlerParts) -> HandlerTable:
    """Make the table of a listener for clients."""
    for api in APIS:
        handler = api.make(parts)
        if handler.api_key in FORWARDED:
            assert isinstance(handler, DecodedHandler), "they are decoded"
            ports = parts.ports
            handler = Forwarded(
                handler,
                parts.active,
                ports.clock,
                ports.scheduler,
                decoders(ports.executors),
                parts.replicas.settled,
            )
            if handler.api_key == ApiKey.DELETE_TOPICS and parts.tier is not None:
                removed = parts.tier.removed_topics
                handler = RemoteDataWishes(handler, parts.active, parts.cluster, removed)
        if handler.api_key == ApiKey.DELETE_RECORDS and parts.tier is not None:
            assert isinstance(handler, DecodedHandler), "it is decoded"
            restoring = PartitionRestoring(parts.replicas, parts.bootstraps)
            handler = RestoredPartitions(handler, restoring)
        parts.table.add(handler)
    return parts.table


SASL_APIS: Final[tuple[Api, ...]] = (sasl_handshake, sasl_authenticate)
"""APIs of listeners with an authenticator only: that of the tier's Kafka clients."""


def build_tier_handlers(clients: HandlerParts) -> HandlerTable:
    """Make the table of the tier's listener: the clients' handlers, and the SASL APIs."""
    parts = replace(clients)  # with a table of its own
    for api in (api_versions, *SASL_APIS):
        parts.table.add(api.make(parts))
    for handler in clients.table:
        if parts.table.get(handler.api_key) is None:
            parts.table.add(handler)
    return parts.table
