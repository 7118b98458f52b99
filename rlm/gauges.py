"""Gauges of a tier as a whole; those of its parts are where the parts are."""

from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.quota import RateQuota
from rlm.telemetry import Telemetry
from rlm.workers import COPIER_POOL, EXPIRATION_POOL, Workers
from runtime.clock import Clock


def add_gauges(
    telemetry: Telemetry, plugins: Plugins, workers: Workers, calls: PluginCalls
) -> None:
    """Show the metadata topic's records, the idle threads and the calls that hang."""
    counts = plugins.metadata.counts
    telemetry.registry.gauge(
        "tidemark_remote_metadata_records",
        "Records of the metadata topic since the tier's start, by what became of them",
        ("outcome",),
        lambda: {(outcome,): float(count) for outcome, count in counts().items()},
    )
    telemetry.gauge(
        "kafka_log_remote_RemoteLogManager_RemoteLogManagerTasksAvgIdlePercent",
        "Idle part of the copier and expiration threads in the last minute, 0 to 1",
        lambda: (workers.idle_share(COPIER_POOL) + workers.idle_share(EXPIRATION_POOL)) / 2,
    )
    telemetry.gauge(
        "tidemark_remote_failing_deletions",
        "Remote segments whose deletion failed when it was last tried, 1000 at most",
        lambda: float(plugins.deletions.failing()),
    )
    telemetry.gauge(
        "tidemark_remote_abandoned_calls",
        "Plugin calls past their limit that still run",
        lambda: float(calls.abandoned),
    )


def add_quota_gauges(telemetry: Telemetry, kind: str, quota: RateQuota, clock: Clock) -> None:
    """Show what a quota lets through and how long it holds back; `kind`: `Copy` or `Fetch`."""
    gauge, now_ms = telemetry.gauge, clock.monotonic_ms
    name = f"kafka_server_RemoteLogManager_remote_{kind.lower()}_throttle_time"
    gauge(
        f"{name}_avg",
        f"Average pause, ms, that the {kind.lower()} quota asked for in the last minute",
        lambda: quota.throttling(now_ms()).average_ms,
    )
    gauge(
        f"{name}_max",
        f"Longest pause, ms, that the {kind.lower()} quota asked for in the last minute",
        lambda: quota.throttling(now_ms()).longest_ms,
    )
    gauge(
        f"kafka_server_RLM{kind}_byte_rate",
        "Bytes per second within the quota's windows",
        lambda: quota.throttling(now_ms()).bytes_per_second,
    )
