"""Metrics of one replica of the quorum; names are Kafka's, `tidemark_` ones are ours.

Source: raft-metrics of Apache Kafka 4.3. Kafka's rates are counters here; Prometheus derives rates.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import RoleChanged
from metadata_topic.raft.roles import Role
from runtime.clock import Clock
from runtime.metrics import Labelled, Recent, Registry

_RAFT: Final = "kafka_server_raft_metrics_"
_WAITING_MAX: Final = 1_000
"""Appends whose commit is timed at once; more appends in between are not timed."""
_VOTED = {Role.UNATTACHED, Role.PROSPECTIVE}
_STANDING = {Role.PROSPECTIVE, Role.CANDIDATE}


class RaftMetrics:
    """Metrics of one replica.

    Attributes:
        fsync_ms: Duration of fsyncs of the log.
        commit_ms: From an append here, as leader, to its commit.
        apply_ms: From the arrival of a commit to an image with it.
        busy_ms: Duration of each step of the replica.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        """Make the counters and histograms; `show` makes the gauges."""
        self._registry, self._clock = registry, clock
        self.fsync_ms = registry.histogram(
            "tidemark_metadata_fsync_time_ms", "How long the metadata log took to become durable."
        )
        self.commit_ms = registry.histogram(
            "tidemark_metadata_commit_time_ms",
            "From an append to the metadata log by this leader to its commit.",
        )
        self.apply_ms = registry.histogram(
            "tidemark_metadata_apply_time_ms",
            "From the news of a commit to an image with it on this node.",
        )
        self._fetched = registry.counter(
            f"{_RAFT}fetch_records_total", "Records that were fetched from the leader."
        )
        self._appended = registry.counter(
            f"{_RAFT}append_records_total", "Records that this node appended as the leader."
        )
        self._commits, self._elections = Recent(clock), Recent(clock)
        self.busy_ms = Recent(clock)
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._unapplied: deque[tuple[int, int]] = deque()
        self._stands_since_ms: int | None = None

    # -- events ---------------------------------------------------------------------------------

    def appended(self, records: int, end_offset: int) -> None:
        """Count records appended as leader; the log now ends at `end_offset` (exclusive)."""
        self._appended.inc(records)
        self._remember(self._uncommitted, end_offset)

    def fetched(self, records: int) -> None:
        """Count records appended from the leader's log."""
        self._fetched.inc(records)

    def committed(self, offset: int) -> None:
        """Time the commits of everything below `offset` (exclusive)."""
        for took_ms in self._passed(self._uncommitted, offset):
            self.commit_ms.observe(took_ms)
            self._commits.note(took_ms)
        self._remember(self._unapplied, offset)

    def applied(self, end_offset: int) -> None:
        """Time the images with everything below `end_offset` (exclusive)."""
        for took_ms in self._passed(self._unapplied, end_offset):
            self.apply_ms.observe(took_ms)

    def on_role(self, change: RoleChanged) -> None:
        """Take a change of role, epoch or leader."""
        now_ms = self._clock.monotonic_ms()
        if change.role is not Role.LEADER:
            self._uncommitted.clear()  # the next leader decides about them
        if change.role in _STANDING and self._stands_since_ms is None:
            self._stands_since_ms = now_ms
        elif change.role in (Role.LEADER, Role.FOLLOWER) and self._stands_since_ms is not None:
            self._elections.note(now_ms - self._stands_since_ms)
            self._stands_since_ms = None

    def _remember(self, waiting: deque[tuple[int, int]], offset: int) -> None:
        if len(waiting) < _WAITING_MAX:
            waiting.append((offset, self._clock.monotonic_ms()))

    def _passed(self, waiting: deque[tuple[int, int]], offset: int) -> list[int]:
        now_ms = self._clock.monotonic_ms()
        took: list[int] = []
        while waiting and waiting[0][0] <= offset:
            took.append(now_ms - waiting.popleft()[1])
        return took

    # -- gauges ---------------------------------------------------------------------------------

    def show(self, core: RaftCore) -> None:
        """Make gauges of a core that has started."""
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "current_leader": (
                "Leader of the epoch; -1 unknown.",
                lambda: _or_none(core.leader_id),
            ),
            "current_vote": (
                "Node that this node voted for in the epoch; -1 none.",
                lambda: -1 if core.election.voted is None else core.election.voted.id,
            ),
            "current_epoch": ("Epoch of this node's replica.", lambda: core.epoch),
            "high_watermark": (
                "First offset that is not known to be committed; -1 unknown.",
                lambda: core.high_watermark,
            ),
            "log_end_offset": ("First offset not written yet.", lambda: core.log.end_offset),
            "log_end_epoch": ("Epoch of the last record.", lambda: core.log.last_epoch),
            "number_unknown_voter_connections": (
                "Voters of which no address is known.",
                lambda: sum(core.replica.node_of(one) is None for one in core.voters.ids),
            ),
            "number_of_voters": ("Voters of the metadata quorum.", lambda: len(core.voters.ids)),
            "number_of_observers": (
                "Others that fetch; only the leader knows them.",
                lambda: 0 if core.leadership is None else len(core.leadership.observers),
            ),
            "uncommitted_voter_change": (
                "1 while a change of the voters is not committed; only on the leader.",
                lambda: (
                    core.leadership is not None
                    and core.history.entries[-1][0] > max(core.high_watermark, 0)
                ),
            ),
            "commit_latency_avg": (
                "Average ms from an append to its commit, in the last minute.",
                lambda: self._commits.average,
            ),
            "commit_latency_max": (
                "Longest ms of a commit, in the last minute.",
                lambda: self._commits.longest,
            ),
            "election_latency_avg": (
                "Average ms of an election that this node stood in, in the last minute.",
                lambda: self._elections.average,
            ),
            "election_latency_max": (
                "Longest ms of an election, in the last minute.",
                lambda: self._elections.longest,
            ),
            "poll_idle_ratio_avg": (
                "Part of the last minute in which the replica had nothing to do; it has no thread "
                "of its own.",
                lambda: self.busy_ms.idle_ratio,
            ),
        }
        gauge = self._registry.gauge
        gauge(
            "kafka_server_MetadataLoader_CurrentControllerId",
            "Active controller, as far as this node knows; -1 unknown.",
            fn=lambda: _or_none(core.leader_id),
        )
        for name, (text, fn) in gauges.items():
            gauge(f"{_RAFT}{name}", text, fn=fn)
        gauge(
            f"{_RAFT}current_state",
            "What this node is; 1 for the state that holds.",
            ("state",),
            lambda: {(state_of(core),): 1.0},
        )
        gauge(
            f"{_RAFT}current_vote_directory_id",
            "The directory id of whom this node voted for; 1 for the one that holds.",
            ("directory_id",),
            lambda: _voted_directory(core),
        )
        gauge(
            "tidemark_metadata_voter_lag",
            "Records that a voter has not fetched yet; only the leader knows.",
            ("voter",),
            lambda: iter(_lags(core)),
        )


def state_of(core: RaftCore) -> str:
    """State of a replica, in the words of Kafka's current-state metric."""
    role, has_voted = core.role, core.election.voted is not None
    if role is Role.RESIGNED:
        return Role.UNATTACHED.value
    if role is Role.FOLLOWER and not core.voters.has(core.key):
        return "observer"
    return f"{role.value}-voted" if role in _VOTED and has_voted else role.value


def _or_none(replica_id: int | None) -> int:
    return -1 if replica_id is None else replica_id


def _voted_directory(core: RaftCore) -> dict[tuple[str, ...], float]:
    voted = core.election.voted
    return {("" if voted is None else uuid_to_text(voted.directory_id),): 1.0}


def _lags(core: RaftCore) -> list[Labelled]:
    known = core.leadership
    if known is None:
        return []
    end = core.log.end_offset
    return [
        ((str(key.id),), float(end - max(one.end_offset, 0))) for key, one in known.voters.items()
    ]
