"""What a tier process is told once, at its start.

The broker makes it from its own configuration and sends it over the link; the tier reads no file of
settings and no environment. Names of the settings behind the fields: docs/configuration.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """Settings of one tier process.

    Attributes:
        state_dir: directory of the metadata log: holds `tier.lock`, the incarnation counter and the
            metadata manager's store. Without it there is no broker either.
        cache_dir: a log directory that worked at the start: holds the index cache and, unless
            `chunk_cache_dir` says otherwise, the chunk cache. Where it fails, reads continue
            without. storage_settings, metadata_settings: what is handed to the two plugins, prefix
            removed.
        copy_max_ms: longest time from before COPY_SEGMENT_STARTED is sent to the last PUT.
        delete_grace_ms: from PARTITION_MARKED to PARTITION_STARTED.
        delete_failing_ms: a deletion that fails for longer is told of in health.
        call_max_ms: a read or delete call of the plugin that runs longer counts as abandoned.
        claim_interval_ms: how often the claim is taken again (`rlm.maintenance.claim`).
        chunk_bytes: about how much is cached as one; a GET asks for one or several.
        slice_bytes: about how much is fetched for somebody who has just come.
        chunk_cache_bytes: bound of chunks in memory, handed-out ones included.
        chunk_cache_policy: see `rlm.read.eviction_policy`.
        log_level, log_format: see `runtime.log_lines`.
        faults_on_demand: tests may make the store fail, see `rsm_plugins.store_faults`.
        wall_offset_ms: how far the wall clock of a test's broker is ahead of the machine's.
        chunk_cache_disk_bytes: bound of chunks on disk, in `chunk_cache_dir`; 0: none there.
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
