"""Settings of the metadata log, and the identity of its node."""

from dataclasses import dataclass
from typing import Final

from local_log.config import LogConfig
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules
from metadata_topic.image.model import Endpoint

_NOT_BY_SIZE: Final = 2**31 - 1
_NOT_BY_TIME: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MetadataLogConfig:
    """Settings of the metadata log; names and defaults are Kafka's.

    Attributes:
        segment_bytes: `metadata.log.segment.bytes`.
        segment_ms: `metadata.log.segment.ms`.
        max_record_bytes_between_snapshots: `metadata.log.max.record.bytes.between.snapshots`.
        max_snapshot_interval_ms: `metadata.log.max.snapshot.interval.ms`; 0 is off.
        max_retention_bytes: `metadata.max.retention.bytes`: log and snapshots together; below 0:
            no limit.
        max_retention_ms: `metadata.max.retention.ms`: how long an outdated snapshot is kept; below
            0: no limit.
        max_idle_interval_ms: `metadata.max.idle.interval.ms`. From NoOp records other voters and
            observers learn how far the leader is. A quorum of one without observers writes none
            (DIFFERS: Kafka writes two a second).
        append_linger_ms: `controller.quorum.append.linger.ms`: longest time for which decisions
            are gathered while earlier ones are being committed.
        election_defaults: The node's `min.insync.replicas`, which also goes into the bootstrap
            records, and `unclean.leader.election.enable`.
        unclean_election_interval_ms: `unclean.leader.election.interval.ms`.
        rebalance_interval_ms: `leader.imbalance.check.interval.seconds`, 0 without
            `auto.leader.rebalance.enable`.
        max_batch_bytes: Limit of one batch.
        replay_records_before_snapshot: A start that replayed more records than this since the last
            snapshot makes a new one. So the next start is short. Kafka counts bytes only.
        close_timeout_ms: Longest wait of a shutdown for decisions and snapshots in progress (ours).
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    max_record_bytes_between_snapshots: int = 20 << 20
    max_snapshot_interval_ms: int = 3600 * 1000
    max_retention_bytes: int = 100 << 20
    max_retention_ms: int = 7 * 24 * 3600 * 1000
    max_idle_interval_ms: int = 500
    append_linger_ms: int = 25
    election_defaults: ElectionRules = DEFAULT_RULES
    unclean_election_interval_ms: int = 300_000
    rebalance_interval_ms: int = 300_000
    max_batch_bytes: int = 8 << 20
    replay_records_before_snapshot: int = 20_000
    close_timeout_ms: int = 30_000

    def log_config(self) -> LogConfig:
        """Settings of the partition log below: no retention of its own, since snapshots decide.

        It rolls no segments by size or time either: `MetadataLog` does, between two decisions, when
        all is flushed.
        """
        return LogConfig(
            segment_bytes=_NOT_BY_SIZE,
            segment_ms=_NOT_BY_TIME,
            retention_ms=-1,
            retention_bytes=-1,
            max_message_bytes=self.max_batch_bytes,
            message_timestamp_after_max_ms=2**63 - 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """Identity of this node, and its addresses for other nodes.

    Attributes:
        node_id: `node.id`.
        cluster_id: Of the cluster this node belongs to.
        directory_id: Of the metadata log directory, from its meta.properties (16 bytes).
        endpoints: Listeners of this controller for other nodes.
    """

    node_id: int
    cluster_id: str
    directory_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
