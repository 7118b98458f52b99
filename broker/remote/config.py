"""Makes the settings of the tier process from those of the broker.

This module alone maps keys to fields. Plugins get their settings with the prefix removed, plus the
few that Kafka gives to each plugin.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from rlm.config import TierConfig

TIER_PRINCIPAL: Final = "Tidemark:tier"
"""The only principal that may write `__remote_log_metadata`. Users of a client listener have
Kafka's type `User`, so that none of them can have this name."""

_RLMM_DEFAULT = "rlmm.topic_based.manager:TopicBasedRemoteLogMetadataManager"


class Settings(Protocol):
    """Typed settings by Kafka's name."""

    def get(self, name: str) -> object:
        """The value of a key, None where it has none."""
        ...


def _int(settings: Settings, name: str) -> int:
    value = settings.get(name)
    assert isinstance(value, int), (name, value)
    return value


def _float(settings: Settings, name: str) -> float:
    value = settings.get(name)
    assert isinstance(value, float), (name, value)
    return value


def _words(settings: Settings, name: str) -> tuple[str, ...]:
    value = settings.get(name)
    assert isinstance(value, tuple), (name, value)
    return value


def tier_config(
    settings: Settings,
    passthrough: Mapping[str, str],
    *,
    node_id: int,
    cluster_id: str,
    state_dir: str,
    cache_dir: str,
) -> TierConfig:
    """Make the tier's settings.

    Args:
        settings: Typed broker settings.
        passthrough: All properties as given, including those of the plugins (`rsm.config.*`,
            `rlmm.config.*`).
        node_id: This broker.
        cluster_id: The Kafka cluster.
        state_dir: Directory of the metadata log.
        cache_dir: A log directory that works.
    """
    storage_prefix = str(settings.get("remote.log.storage.manager.impl.prefix") or "rsm.config.")
    metadata_prefix = str(settings.get("remote.log.metadata.manager.impl.prefix") or "rlmm.config.")
    storage_class = str(settings.get("remote.log.storage.manager.class.name") or "")
    metadata_class = str(settings.get("remote.log.metadata.manager.class.name") or _RLMM_DEFAULT)
    common = {"node.id": str(node_id), "broker.id": str(node_id), "cluster.id": cluster_id}
    metadata_settings = _below(metadata_prefix, passthrough) | common
    metadata_settings["log.dir"] = state_dir
    metadata_settings["tidemark.remote.copy.max.ms"] = str(
        _int(settings, "tidemark.remote.copy.max.ms")
    )
    return TierConfig(
        node_id=node_id,
        cluster_id=cluster_id,
        state_dir=state_dir,
        cache_dir=cache_dir,
        storage_class=storage_class,
        storage_settings=_below(storage_prefix, passthrough) | common,
        metadata_class=metadata_class,
        metadata_settings=metadata_settings,
        copier_threads=_int(settings, "remote.log.manager.copier.thread.pool.size"),
        expiration_threads=_int(settings, "remote.log.manager.expiration.thread.pool.size"),
        reader_threads=_int(settings, "remote.log.reader.threads"),
        reader_pending_max=_int(settings, "remote.log.reader.max.pending.tasks"),
        task_interval_ms=_int(settings, "remote.log.manager.task.interval.ms"),
        retry_backoff_ms=_int(settings, "remote.log.manager.task.retry.backoff.ms"),
        retry_backoff_max_ms=_int(settings, "remote.log.manager.task.retry.backoff.max.ms"),
        retry_jitter=_float(settings, "remote.log.manager.task.retry.jitter"),
        custom_metadata_bytes_max=_int(settings, "remote.log.metadata.custom.metadata.max.bytes"),
        index_cache_bytes=_int(settings, "remote.log.index.file.cache.total.size.bytes"),
        index_cache_ttl_ms=_int(settings, "remote.log.index.file.cache.ttl.ms"),
        copy_bytes_per_second=_int(settings, "remote.log.manager.copy.max.bytes.per.second"),
        copy_quota_window_count=_int(settings, "remote.log.manager.copy.quota.window.num"),
        copy_quota_window_seconds=_int(
            settings, "remote.log.manager.copy.quota.window.size.seconds"
        ),
        fetch_bytes_per_second=_int(settings, "remote.log.manager.fetch.max.bytes.per.second"),
        fetch_quota_window_count=_int(settings, "remote.log.manager.fetch.quota.window.num"),
        fetch_quota_window_seconds=_int(
            settings, "remote.log.manager.fetch.quota.window.size.seconds"
        ),
        copy_max_ms=_int(settings, "tidemark.remote.copy.max.ms"),
        log_level=_words(settings, "tidemark.log.level"),
        log_format=str(settings.get("tidemark.log.format")),
        delete_grace_ms=_int(settings, "tidemark.remote.delete.grace.ms"),
        delete_failing_ms=_int(settings, "tidemark.remote.delete.failing.ms"),
        call_max_ms=_int(settings, "tidemark.remote.call.max.ms"),
        claim_interval_ms=_int(settings, "tidemark.remote.claim.interval.ms"),
        chunk_cache_bytes=_int(settings, "tidemark.remote.chunk.cache.bytes"),
        chunk_cache_policy=str(settings.get("tidemark.remote.chunk.cache.policy")),
        chunk_cache_disk_bytes=_int(settings, "tidemark.remote.chunk.cache.disk.bytes"),
        chunk_cache_dir=str(settings.get("tidemark.remote.chunk.cache.dir") or ""),
        faults_on_demand=bool(settings.get("tidemark.control.listener")),
    )


def _below(prefix: str, properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(prefix): value
        for key, value in properties.items()
        if key.startswith(prefix)
    }
