"""The settings that a tier process gets at its start.

The broker makes them from its own configuration and sends them over the link. The tier reads
neither a settings file nor the environment. docs/configuration.md has the names of the settings
behind the fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """Settings of one tier process.

    Attributes:
        state_dir: Directory of the metadata log. It holds `tier.lock`, the incarnation counter and
            the metadata manager's store. The broker does not run without it either.
        cache_dir: A log directory that worked at the start. It holds the index cache and, unless
            `chunk_cache_dir` is set, the chunk cache. If it fails, reads continue without these
            caches.
        storage_settings, metadata_settings: Settings of the two plugins, prefix removed.
        copy_max_ms: Longest time from before COPY_SEGMENT_STARTED is sent to the last PUT.
        delete_grace_ms: Time from PARTITION_MARKED to PARTITION_STARTED.
        delete_failing_ms: A deletion that fails for longer is reported in health.
        call_max_ms: A read or delete call of the plugin that runs longer counts as abandoned.
        claim_interval_ms: Interval at which the claim is renewed (`rlm.maintenance.claim`).
        chunk_bytes: Approximate size of a cached chunk; a GET fetches one or several.
        slice_bytes: Approximate size of a reader's first fetch.
        chunk_cache_bytes: Bound of the chunks in memory, leased ones included.
        chunk_cache_policy: Name of a policy in `rlm.read.eviction_policy`.
        log_level, log_format: Settings of `runtime.log_lines`.
        faults_on_demand: Tests may make the store fail (`rsm_plugins.store_faults`).
        wall_offset_ms: Test brokers only: lead of the wall clock over the machine's.
        chunk_cache_disk_bytes: Bound of the chunks on disk, in `chunk_cache_dir`; 0: none are kept.
    """

    node_id: int
    cluster_id: str
    state_dir: str
    cache_dir: str
    storage_class: str
    storage_settings: Mapping[str, str] = field(default_factory=dict)
    metadata_class: str = "rlmm.topic_based.manager:TopicBasedRemoteLogMetadataManager"
    metadata_settings: Mapping[str, str] = field(default_factory=dict)
    copier_threads: int = 10
    expiration_threads: int = 10
    reader_threads: int = 10
    reader_pending_max: int = 100
    task_interval_ms: int = 30_000
    retry_backoff_ms: int = 500
    retry_backoff_max_ms: int = 30_000
    retry_jitter: float = 0.2
    custom_metadata_bytes_max: int = 128
    index_cache_bytes: int = 1 << 30
    index_cache_ttl_ms: int = 900_000
    copy_bytes_per_second: int = NO_LIMIT
    copy_quota_window_count: int = 11
    copy_quota_window_seconds: int = 1
    fetch_bytes_per_second: int = NO_LIMIT
    fetch_quota_window_count: int = 11
    fetch_quota_window_seconds: int = 1
    copy_max_ms: int = 3_600_000
    delete_grace_ms: int = 60_000
    delete_failing_ms: int = 600_000
    call_max_ms: int = 120_000
    claim_interval_ms: int = 300_000
    chunk_bytes: int = 2 << 20
    slice_bytes: int = 128 << 10
    chunk_cache_bytes: int = 128 << 20
    chunk_cache_policy: str = "scan-resistant"
    chunk_cache_disk_bytes: int = 0
    chunk_cache_dir: str = ""
    metadata_partitions: int = 50
    log_level: tuple[str, ...] = ("INFO",)
    log_format: str = "text"
    faults_on_demand: bool = False
    wall_offset_ms: int = 0
