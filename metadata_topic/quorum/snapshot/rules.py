"""Rules for making a snapshot, and for deleting old ones: pure functions.

Source: KIP-630; triggers and clean-up as in Kafka's SnapshotGenerator and KafkaMetadataLog.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.raft.messages import SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Events since the last snapshot.

    Attributes:
        bytes_since: Size of the record batches applied.
        records_since: Records replayed by the last start.
        waited_ms: Since the last snapshot, or since the start.
        has_new_records: The image has records that the last snapshot has not.
    """

    bytes_since: int
    records_since: int
    waited_ms: int
    has_new_records: bool


def is_snapshot_due(facts: SnapshotFacts, config: MetadataLogConfig) -> bool:
    """Decide whether to make a snapshot now."""
    if not facts.has_new_records:
        return False
    interval_ms = config.max_snapshot_interval_ms
    return (
        facts.bytes_since >= config.max_record_bytes_between_snapshots
        or facts.records_since > config.replay_records_before_snapshot
        or (interval_ms > 0 and facts.waited_ms >= interval_ms)
    )


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A snapshot on disk, for `snapshots_to_delete`."""

    id: SnapshotId
    size_bytes: int
    age_ms: int


def snapshots_to_delete(
    snapshots: Sequence[KeptSnapshot], log_bytes: int, config: MetadataLogConfig
) -> int:
    """Return how many of the oldest snapshots exceed retention; the newest always stays.

    Args:
        snapshots: Oldest first.
        log_bytes: Size of the log.
        config: Retention by time, and by size of log and snapshots together.
    """
    total = log_bytes + sum(snapshot.size_bytes for snapshot in snapshots)
    count = 0
    for snapshot in snapshots[:-1]:
        too_old = 0 <= config.max_retention_ms < snapshot.age_ms
        too_large = 0 <= config.max_retention_bytes < total
        if not (too_old or too_large):
            break
        count += 1
        total -= snapshot.size_bytes
    return count


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Bounds of the new log start.

    Attributes:
        size_bytes: Of all segments.
        start_offset: First offset still in the log.
        start_limit: Upper bound of the log start: the high watermark, and on a follower the
            leader's log start.
    """

    size_bytes: int
    start_offset: int
    start_limit: int


def snapshots_to_let_go(
    snapshots: Sequence[KeptSnapshot], log: LogFacts, config: MetadataLogConfig
) -> int:
    """Return how many of the oldest snapshots can be deleted now.

    The log start rises to the end of the oldest one left, if its limit allows that. A snapshot that
    ends below the log start is useless.

    Args:
        snapshots: Oldest first.
        log: Bounds of its new start.
        config: Same as for `snapshots_to_delete`.
    """
    useless = sum(one.id.end_offset < log.start_offset for one in snapshots[:-1])
    count = max(useless, snapshots_to_delete(snapshots, log.size_bytes, config))
    while count > useless and snapshots[count].id.end_offset > log.start_limit:
        count -= 1
    return count
