"""Metrics of the log cleaner, under Kafka's names."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from local_log.cleaner.cleaner import LogCleaner
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dirs import LogManager
from runtime.clock import Clock
from runtime.metrics import Registry

Totals = Mapping[tuple[str, ...], float]

_CLEANER = "kafka_log_LogCleaner_"
_MANAGER = "kafka_log_LogCleanerManager_"


def register_cleaner_metrics(
    metrics: Registry, cleaner: LogCleaner, logs: LogManager, clock: Clock
) -> None:
    """Register the gauges of passes and of partitions that are not cleaned."""
    facts = cleaner.facts
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        f"{_CLEANER}cleaner_recopy_percent": (
            "Bytes written by the last pass for each hundred that it read.",
            lambda: round(100 * facts.recopy_ratio),
        ),
        f"{_CLEANER}max_clean_time_secs": (
            "How long the last pass took.",
            lambda: facts.clean_ms / 1000,
        ),
        f"{_CLEANER}max_buffer_utilization_percent": (
            "How full the key buffer was in the last pass.",
            lambda: round(100 * facts.map_use),
        ),
        f"{_CLEANER}max_compaction_delay_secs": (
            "Longest time by which a record is over its max.compaction.lag.ms.",
            lambda: facts.delay_ms / 1000,
        ),
        f"{_CLEANER}DeadThreadCount": (
            "1 while the cleaner process does not survive its jobs, or cannot be started.",
            lambda: int(facts.failures > 0),
        ),
        f"{_MANAGER}max_dirty_percent": (
            "Dirty share of the dirtiest compacted log.",
            lambda: round(100 * facts.dirty_ratio),
        ),
        f"{_MANAGER}time_since_last_run_ms": (
            "Time since the cleaner looked for a dirty log.",
            lambda: 0 if facts.checked_ms is None else clock.monotonic_ms() - facts.checked_ms,
        ),
        "tidemark_log_cleaner_unread_partitions": (
            "Compacted partitions that could not be read to see whether they are dirty.",
            lambda: len(cleaner.unread),
        ),
        "tidemark_log_cleaner_passes_total": (
            "Passes of the cleaner over a log.",
            lambda: facts.passes,
        ),
        "tidemark_log_cleaner_read_bytes_total": (
            "Bytes that the cleaner has read.",
            lambda: facts.read_bytes,
        ),
        "tidemark_log_cleaner_written_bytes_total": (
            "Bytes that the cleaner has written.",
            lambda: facts.written_bytes,
        ),
    }
    for name, (text, fn) in gauges.items():
        metrics.gauge(name, text, fn=fn)

    def of_directories(fact: Callable[[Sequence[PartitionLog]], int]) -> Callable[[], Totals]:
        def totals() -> Totals:
            found: dict[Path, list[PartitionLog]] = {one.path: [] for one in logs.dirs}
            for each in cleaner.uncleanable:
                found.setdefault(each.directory.parent, []).append(each)
            return {(str(path),): fact(some) for path, some in found.items()}

        return totals

    metrics.gauge(
        f"{_MANAGER}uncleanable_partitions_count",
        "Partitions that are not cleaned until the next start, for damage or lost processes.",
        ("logDirectory",),
        of_directories(len),
    )
    metrics.gauge(
        f"{_MANAGER}uncleanable_bytes",
        "Closed bytes of partitions that are not cleaned until the next start.",
        ("logDirectory",),
        of_directories(lambda some: sum(each.segments.closed_bytes for each in some)),
    )
