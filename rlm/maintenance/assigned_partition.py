"""State of the RemoteLogManager about one assigned partition; belongs to the manager's thread."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import Assign, PartitionSettings
from rlm.maintenance.copy_policy import CopyPriority
from rlm.maintenance.effects import PassResult
from rlm.maintenance.ownership import Ownership
from runtime.health_reasons import HEALTHY, HealthReason, HealthText
from runtime.rng import Backoff
from runtime.scheduler import Timer

COPY, EXPIRE = "copy", "expire"
_FAILED = {COPY: HealthReason.COPY, EXPIRE: HealthReason.EXPIRE}


class CountDown:
    """Calls a function after `count` calls of `one`; at once for a count of 0."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left, self._done = count, done
        if not count:
            done()

    def one(self) -> None:
        """Count one call."""
        self._left -= 1
        if self._left == 0:
            self._done()


class PassEnds:
    """Waiters for the end of one kind of pass of one partition."""

    __slots__ = ("_next", "_running")

    def __init__(self) -> None:
        self._next: list[CountDown] = []
        self._running: list[CountDown] = []

    def wait(self, waiting: CountDown) -> None:
        """Count `waiting` down when the next pass that begins has ended, or when none will."""
        self._next.append(waiting)

    def begun(self) -> None:
        """A pass begins."""
        self._running, self._next = self._running + self._next, []

    def ended(self) -> None:
        """A pass has ended, successfully or not."""
        over, self._running = self._running, []
        for waiting in over:
            waiting.one()

    def cancelled(self) -> None:
        """No pass begins any more: count all waiters down."""
        self.begun()
        self.ended()


@dataclass(slots=True)
class Pass:
    """One kind of pass of one ownership."""

    kind: str
    backoff: Backoff
    running: bool = False
    again: bool = False
    timer: Timer | None = None
    unhealthy: HealthText = HEALTHY
    ends: PassEnds = field(default_factory=PassEnds)
    priority: CopyPriority = field(default_factory=CopyPriority)

    def failed(self, error: object) -> None:
        """Become unhealthy for `error`."""
        self.unhealthy = _FAILED[self.kind].text(error=error)

    def passed(self, result: PassResult, interval_ms: int) -> float:
        """Record an end without error; returns the delay in ms until the next pass."""
        self.priority.lag_bytes = result.lag_bytes
        pause_ms: float = interval_ms if result.again_in_ms is None else result.again_in_ms
        if result.store_errors:
            self.failed(f"{result.store_errors} deletions failed")
            pause_ms = self.backoff.next_ms()
        elif not result.is_held:  # else the result of the last try still holds
            self.unhealthy = result.unhealthy
            self.backoff.reset()
        return 0 if self.again else pause_ms


@dataclass(slots=True)
class AssignedPartition:
    """An assigned partition.

    Attributes:
        validated: The epoch chain and the log start offset were validated under this ownership.
        above: The next incarnation must be higher than this. It is the last own one, if that is
            over or lost records. After a refusal it is the highest one that was read under this
            leader epoch.
    """

    tip: TopicIdPartition
    leader_epoch: int
    is_leader: bool
    settings: PartitionSettings
    metadata_offset: int
    unclean_epoch: int = -1
    ownership: Ownership | None = None
    ready: bool = False
    validated: bool = False
    unhealthy: HealthText = HEALTHY
    above: int = -1
    own_backoff: Backoff | None = None
    own_timer: Timer | None = None
    passes: dict[str, Pass] = field(default_factory=dict)

    @classmethod
    def of(cls, assign: Assign) -> "AssignedPartition":
        """From the broker's assignment."""
        return cls(
            TopicIdPartition(assign.topic_id, assign.partition, assign.topic),
            assign.leader_epoch,
            assign.is_leader,
            assign.settings,
            assign.metadata_offset,
            assign.unclean_epoch,
        )

    def unhealthy_ones(self) -> list[HealthText]:
        """The distinct health reasons of the partition and its passes."""
        found = [self.unhealthy, *(each.unhealthy for each in self.passes.values())]
        return [reason for reason in dict.fromkeys(found) if reason]

    def end_ownership(self) -> None:
        """Cancel all work of the ownership; no further plugin call starts."""
        if self.ownership is not None:
            self.ownership.cancellation.cancel()
            self.ownership = None
        self.ready = self.validated = False
        for each in self.passes.values():
            if each.timer is not None:
                each.timer.cancel()
            each.ends.cancelled()
        self.passes = {}
        if self.own_timer is not None:
            self.own_timer.cancel()
            self.own_timer = None
