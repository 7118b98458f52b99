"""The configuration of one node, as a typed, frozen view.

`BrokerConfig.load` reads `server.properties`, translates old names, checks every value and every
rule between keys, and returns the view with warnings. A field is named after its key, with `_` for
`.`; `get` returns the values of all keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from broker.config import properties
from broker.config.aliases import translate_broker
from broker.config.key import ConfigError, Value
from broker.config.keys import BROKER_KEYS, METADATA_MANAGER_KEYS, SERVER_FALLBACKS
from broker.config.keys_log import RACK_AWARE_SELECTOR
from broker.config.listeners import Listener, Voter
from broker.config.resolve import Resolved, effective_name, resolve
from broker.config.rules import Addresses, check_values, derive_addresses
from runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class Layers:
    """The sources of values, weakest first: file, default of the cluster, this broker.

    Attributes:
        static: Text from file and overrides, by current names.
        dynamic_default: Set by IncrementalAlterConfigs for all brokers (resource name "").
        dynamic_broker: Set by IncrementalAlterConfigs for this broker.
    """

    static: Mapping[str, str]
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic_broker: Mapping[str, str] = field(default_factory=dict)

    def merged(self) -> dict[str, str]:
        """Return the effective entries, by name."""
        return {**self.static, **self.dynamic_default, **self.dynamic_broker}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The settings of a node. Times are in the unit of their name, sizes in bytes.

    Attributes:
        layers: The entries as given, by source.
        without_effect: Keys that were set and have no effect here; to be logged in one line.
        listeners: All listeners of this node, including those of controllers.
        advertised_listeners: Endpoints for clients; without controller listeners.
        inter_broker_listener_name: Name of the listener for brokers; "" on a pure controller.
        controller_quorum_bootstrap_servers: (host, port) each.
        max_connections_per_ip_overrides: Limit by host.
        log_retention_ms: -1 means no limit.
        http_listener: (host, port) of health and metrics, None for off.
        control_listener: (host, port) for commands of tests, None for off.
        tier_listener: For the Kafka clients of all tiers of the cluster. None without a tier, and
            on a lone broker, which chooses a loopback address by itself.
        advertised_tier_listener: Its endpoint for the tiers of other brokers.
        rsm_settings: Settings of the storage plugin, prefix removed.
        rlmm_settings: Settings of the metadata manager, prefix removed; defaults filled in.
    """

    layers: Layers = field(repr=False)
    without_effect: tuple[str, ...]
    values: Mapping[str, Value] = field(repr=False)
    # identity and addresses
    node_id: int
    process_roles: tuple[str, ...]
    broker_rack: str | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    controller_quorum_voters: tuple[Voter, ...]
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...]
    log_dirs: tuple[Path, ...]
    metadata_log_dir: Path
    http_listener: tuple[str, int] | None
    control_listener: tuple[str, int] | None
    tier_listener: Listener | None
    advertised_tier_listener: Listener | None
    # metadata log
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_idle_interval_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    unclean_leader_election_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    # connections and requests
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    connections_max_idle_ms: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    fetch_max_bytes: int
    # new topics
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    # local log
    message_max_bytes: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_cleanup_policy: tuple[str, ...]
    log_segment_bytes: int
    log_roll_ms: int
    log_roll_jitter_ms: int
    log_retention_ms: int
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_local_retention_ms: int
    log_local_retention_bytes: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_segment_delete_delay_ms: int
    log_message_timestamp_type: str
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_after_max_ms: int
    log_preallocate: bool
    num_recovery_threads_per_data_dir: int
    # replication
    follower_replication_throttled_rate: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    num_replica_fetchers: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    # groups
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    # remote tier
    follower_fetch_last_tiered_offset_enable: bool
    remote_log_storage_system_enable: bool
    remote_log_storage_manager_class_name: str | None
    remote_log_metadata_manager_class_name: str
    remote_log_metadata_custom_metadata_max_bytes: int
    remote_log_index_file_cache_total_size_bytes: int
    remote_log_index_file_cache_ttl_ms: int
    remote_log_manager_copier_thread_pool_size: int
    remote_log_manager_expiration_thread_pool_size: int
    remote_log_manager_follower_thread_pool_size: int
    remote_log_manager_task_interval_ms: int
    remote_log_manager_task_retry_backoff_ms: int
    remote_log_manager_task_retry_backoff_max_ms: int
    remote_log_manager_task_retry_jitter: float
    remote_log_reader_threads: int
    remote_log_reader_max_pending_tasks: int
    remote_log_manager_copy_max_bytes_per_second: int
    remote_log_manager_copy_quota_window_num: int
    remote_log_manager_copy_quota_window_size_seconds: int
    remote_log_manager_fetch_max_bytes_per_second: int
    remote_log_manager_fetch_quota_window_num: int
    remote_log_manager_fetch_quota_window_size_seconds: int
    remote_fetch_max_wait_ms: int
    remote_list_offsets_request_timeout_ms: int
    log_remote_copy_lag_ms: int
    log_remote_copy_lag_bytes: int
    tidemark_cluster_secret_file: str
    tidemark_console_enable: bool | None
    tidemark_console_hosts: tuple[str, ...]
    tidemark_connection_in_flight_max: int
    tidemark_connection_unsent_bytes_max: int
    tidemark_connections_unsent_bytes_max: int
    tidemark_decoded_request_bytes_max: int
    tidemark_connection_write_timeout_ms: int
    tidemark_follower_bootstrap_hold_ms: int
    tidemark_group_bytes_max: int
    tidemark_log_format: str
    tidemark_log_level: tuple[str, ...]
    tidemark_request_receive_timeout_ms: int
    tidemark_remote_chunk_cache_bytes: int
    tidemark_remote_copy_max_ms: int
    tidemark_remote_delete_grace_ms: int
    rsm_settings: Mapping[str, str] = field(repr=False)
    rlmm_settings: Mapping[str, str] = field(repr=False)

    @classmethod
    def load(
        cls, source: str | Path | Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> "tuple[BrokerConfig, list[str]]":
        """Read and check a configuration.

        Args:
            source: Path of a properties file, or its entries.
            overrides: Entries that replace those of `source`.

        Returns:
            The view, and warnings about unknown keys, one sentence each.

        Raises:
            ConfigError: The file cannot be read, or a value or a combination is not allowed.
        """
        entries = dict(source) if isinstance(source, Mapping) else read_properties(Path(source))
        static = _overlay(entries, overrides or {})
        resolved = resolve(static)
        return cls._build(Layers(MappingProxyType(static)), resolved), list(resolved.warnings)

    def with_dynamic(
        self, cluster_default: Mapping[str, str], own: Mapping[str, str]
    ) -> "BrokerConfig":
        """Return the configuration with entries set by IncrementalAlterConfigs.

        Args:
            cluster_default: Entries of the broker resource "".
            own: Entries of the broker resource with this node's id.

        Raises:
            ConfigError: A value or a combination is not allowed.
        """
        layers = Layers(self.layers.static, dict(cluster_default), dict(own))
        return self._build(layers, resolve(layers.merged()))

    @classmethod
    def _build(cls, layers: Layers, resolved: Resolved) -> "BrokerConfig":
        values = resolved.values
        addresses = derive_addresses(values, layers.static)
        check_values(values, layers.merged(), addresses)
        # Any: the table of keys guarantees the type of each value
        given: dict[str, Any] = {
            item.name: _value_of(values, item.name)
            for item in fields(cls)
            if item.name.replace("_", ".") in BROKER_KEYS
        }
        if (
            "remote.log.manager.follower.thread.pool.size" not in layers.merged()
            and "remote.log.manager.thread.pool.size" in layers.merged()
        ):  # the deprecated name counts if the new one is not set
            old = values["remote.log.manager.thread.pool.size"]
            given["remote_log_manager_follower_thread_pool_size"] = old
        given.update(_address_fields(addresses))
        given["rsm_settings"] = MappingProxyType(
            _under(layers.static, str(values["remote.log.storage.manager.impl.prefix"]))
        )
        given["rlmm_settings"] = MappingProxyType(
            {key.name: key.default or "" for key in METADATA_MANAGER_KEYS.values()}
            | _under(layers.static, str(values["remote.log.metadata.manager.impl.prefix"]))
        )
        return cls(
            layers=layers,
            without_effect=resolved.without_effect,
            values=MappingProxyType(dict(values)),
            **given,
        )

    def get(self, name: str) -> Value:
        """Return the value of any broker key by Kafka's name, defaults included.

        Raises:
            KeyError: There is no such broker key.
        """
        return self.values[name]

    @property
    def is_broker(self) -> bool:
        """True if this node serves clients."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """True if this node votes on the cluster's metadata."""
        return "controller" in self.process_roles

    @property
    def selects_by_rack(self) -> bool:
        """True if leaders send consumers to a replica in their rack (KIP-392)."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners that clients and brokers use."""
        return tuple(
            one for one in self.listeners if one.name not in self.controller_listener_names
        )

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners that controllers use; empty on a pure broker."""
        return tuple(one for one in self.listeners if one.name in self.controller_listener_names)

    @property
    def has_static_voters(self) -> bool:
        """True if the quorum's voters are fixed by the configuration (kraft.version 0)."""
        return bool(self.controller_quorum_voters)


def read_properties(path: Path, disk: Disk | None = None) -> dict[str, str]:
    """Read a properties file.

    Raises:
        ConfigError: The file cannot be read or is not in the format.
    """
    try:
        data = (disk or Disk()).read_file(path)
        return properties.parse(properties.decode(data))
    except OSError as error:
        raise ConfigError("config file", path, error.strerror or str(error)) from None
    except properties.PropertiesError as error:
        raise ConfigError("config file", path, str(error)) from None


def _overlay(entries: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Replace entries by overrides; an override may use an old name.

    `broker.id` and `node.id` are two valid names of one setting: each sets the other.
    """
    merged = {**translate_broker(entries), **translate_broker(overrides)}
    for one, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if one in merged:
            merged.setdefault(other, merged[one])
    return merged


def _value_of(values: Mapping[str, Value], field_name: str) -> Value:
    name = field_name.replace("_", ".")
    if name in SERVER_FALLBACKS:
        return values[effective_name(name)]
    return values[name]


def _under(entries: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): text for name, text in entries.items() if name.startswith(prefix)
    }


def _address_fields(addresses: Addresses) -> dict[str, Any]:
    # Any: one dict for fields of many types
    return {item.name: getattr(addresses, item.name) for item in fields(addresses)}
