"""Ports of the active controller: the quorum's log, settings, and watchers."""

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
    """Other replicas that follow the log.

    Attributes:
        has_other_voters: There are voters besides this node.
        observer_seen_ms: Time of the last fetch by an observer, by the monotonic clock; None:
            never.
    """

    has_other_voters: bool = False
    observer_seen_ms: int | None = None


class ControllerLog(Protocol):
    """The quorum's log, as its leader writes it."""

    def propose(self, batches: tuple[BatchFacts, ...], data: bytes | bytearray, epoch: int) -> bool:
        """Append batches, all of them or none; does not wait until they are durable.

        Returns:
            False: nothing was appended, because this node does not lead `epoch` or the log does not
                end where the first batch begins.
        """
        ...

    def must_flush(self, more_bytes: int) -> bool:
        """True if an append of this many bytes must wait for a flush in progress."""
        ...

    def log_end(self) -> int:
        """First offset not written yet."""
        ...

    def flushed_end(self) -> int:
        """First offset (exclusive end) that is not durable in this node's log."""
        ...


class Watcher(Protocol):
    """Receives the begin and end of this node's terms as active controller."""

    def on_active(self, image: MetadataImage) -> None:
        """Begin a term; `image` is the newest decided one."""
        ...

    def on_inactive(self) -> None:
        """End the term; its pending decisions are not answered yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of the controller; names and defaults are Kafka's where it has them.

    Attributes:
        append_linger_ms: `controller.quorum.append.linger.ms`.
        max_batch_bytes: Limit of a batch; that many gathered bytes are appended at once.
        decisions_max: Limit of decisions that wait or are not committed yet; more are refused.
        uncommitted_bytes_max: No decision is taken while more bytes than this are not committed.
        max_idle_interval_ms: `metadata.max.idle.interval.ms`; 0: no NoOp records.
        bootstrap: Records of `bootstrap.checkpoint`, written if the log has none yet.
        bootstrap_problem: Why they cannot be read; a controller that needs them resigns.
        election_defaults: Election settings in this controller's properties; its
            `min.insync.replicas` also goes into the bootstrap records.
        registration: Of this controller; None: it does not register.
        unclean_election_interval_ms: `unclean.leader.election.interval.ms`.
        rebalance_interval_ms: `leader.imbalance.check.interval.seconds`; 0: leadership does not
            return to the preferred replicas by itself.
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
    """Ports of the controller.

    Attributes:
        resign: Gives up leadership of the quorum, for the reason given.
        audience: Returns the replicas that would read a NoOp record.
    """

    log: ControllerLog
    clock: Clock
    scheduler: Scheduler
    settings: ControllerSettings
    metrics: ControllerMetrics
    resign: Callable[[str], None]
    audience: Callable[[], Audience]
