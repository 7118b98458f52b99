"""What the active controller stands on: the log of the quorum, settings, and who listens to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import MetadataRecord
from metadata_topic.quorum.active.controller_metrics import ControllerMetrics
from metadata_topic.raft.messages import BatchFacts
from runtime.clock import Clock
from runtime.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Audience:
    """Who follows the log besides the leader.

    Attributes:
        has_other_voters: there is a voter that is not this node.
        observer_seen_ms: when an observer fetched last, by the monotonic clock; None: never.
    """

    has_other_voters: bool = False
    observer_seen_ms: int | None = None


class ControllerLog(Protocol):
    """The quorum's log, as far as the leader writes it."""

    def propose(self, batches: tuple[BatchFacts, ...], data: bytes | bytearray, epoch: int) -> bool:
        """Append batches, all of them or none; does not wait until they are durable.

        Returns:
            False: nothing was appended; this node does not lead `epoch`, or the log does not end
            where the first batch begins.
        """
        ...

    def must_flush(self, more_bytes: int) -> bool:
        """Whether an append of so many bytes must wait for a flush that is under way."""
        ...

    def log_end(self) -> int:
        """First offset not written yet (exclusive end)."""
        ...

    def flushed_end(self) -> int:
        """Up to where (exclusive) this node's log is durable."""
        ...


class Watcher(Protocol):
    """Hears when this node begins and ceases to be the active controller."""

    def on_active(self, image: MetadataImage) -> None:
        """Decisions are taken from now on; `image` is the newest one that was decided."""
        ...

    def on_inactive(self) -> None:
        """No more decisions; callers have not been told yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Typed view; names and defaults are Kafka's where it has them.

    Attributes:
        append_linger_ms: `controller.quorum.append.linger.ms`.
        max_batch_bytes: of a batch; so many bytes are appended without waiting for more, too.
        decisions_max: decisions that wait or are not committed yet; further ones are refused.
        uncommitted_bytes_max: nothing more is decided while so much is not committed.
        max_idle_interval_ms: `metadata.max.idle.interval.ms`; 0: no NoOp records.
        bootstrap: records of `bootstrap.checkpoint`, written if the log has none yet.
        bootstrap_problem: why they cannot be read; a controller that needs them resigns.
        election_defaults: what the properties of this controller say of elections; its
            `min.insync.replicas` goes into the bootstrap records, too.
        registration: what this controller says of itself; None: it does not register.
        unclean_election_interval_ms: `unclean.leader.election.interval.ms`.
        rebalance_interval_ms: `leader.imbalance.check.interval.seconds`; 0: leadership does not
            return by itself to the first replicas.
    """

    append_linger_ms: int = 25
    max_batch_bytes: int = 8 << 20
    decisions_max: int = 1_000
    uncommitted_bytes_max: int = 64 << 20
    max_idle_interval_ms: int = 500
    bootstrap: tuple[MetadataRecord, ...] = ()
    bootstrap_problem: str = ""
    election_defaults: ElectionRules = DEFAULT_RULES
    registration: Registration | None = None
    unclean_election_interval_ms: int = 300_000
    rebalance_interval_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerWorld:
    """Everything outside of the controller.

    Attributes:
        resign: this controller cannot continue, for the reason named; somebody else must lead.
        audience: who would hear of a NoOp record.
    """

    log: ControllerLog
    clock: Clock
    scheduler: Scheduler
    settings: ControllerSettings
    metrics: ControllerMetrics
    resign: Callable[[str], None]
    audience: Callable[[], Audience]
