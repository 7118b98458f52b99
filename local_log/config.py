"""Settings of a topic for its logs: one frozen value, replaced as a whole."""

from dataclasses import dataclass, field

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Topic-level settings with Kafka's defaults; names are Kafka's with dots as underscores.

    `retention_ms`, `retention_bytes`: -1: no limit. `local_retention_ms`, `local_retention_bytes`:
    -2: as the total one. Source: Apache Kafka 4.3, LogConfig.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = (1 << 20) + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    unclean_leader_election_enable: bool = False
    follower_replication_throttled_replicas: frozenset[str] = frozenset()
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    remote_storage_enable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_copy_lag_ms: int = 0
    remote_copy_lag_bytes: int = 0

    # Read by each append.
    stamps_append_time: bool = field(init=False, repr=False, compare=False)
    """True if the broker's clock replaces the producers' timestamps."""
    opens_batches: bool = field(init=False, repr=False, compare=False)
    """True if batches must be inflated: each record is validated, or compressed again."""

    def __post_init__(self) -> None:
        stamps = self.message_timestamp_type == "LogAppendTime"
        opens = self.validates_records or self.compression_type != "producer"
        object.__setattr__(self, "stamps_append_time", stamps)
        object.__setattr__(self, "opens_batches", opens)

    @property
    def validates_records(self) -> bool:
        """True if each record of a batch is validated before the append."""
        return self.compacts or self.message_timestamp_before_max_ms != LONG_MAX

    @property
    def compacts(self) -> bool:
        """True if only the newest record of a key must be kept."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True if old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def is_tiered(self) -> bool:
        """True if the remote tier has records of the log, or must delete them."""
        return self.remote_storage_enable or self.remote_log_delete_on_disable

    @property
    def drops_remote(self) -> bool:
        """True if tiering is off, and all remote data is to be deleted."""
        return self.remote_log_delete_on_disable and not self.remote_storage_enable

    @property
    def copies_to_remote(self) -> bool:
        """True if closed segments are copied, so that local retention applies."""
        return self.remote_storage_enable and not self.remote_log_copy_disable

    @property
    def effective_local_retention_ms(self) -> int:
        """Local retention by time with -2 resolved; -1 without limit."""
        return self.retention_ms if self.local_retention_ms == -2 else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """Local retention by size with -2 resolved; -1 without limit."""
        if self.local_retention_bytes == -2:
            return self.retention_bytes
        return self.local_retention_bytes
