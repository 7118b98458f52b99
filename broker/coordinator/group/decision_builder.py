"""Collects records, answers and timers of a decision."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import (
    NOTHING,
    Answer,
    CancelTimer,
    Decision,
    GroupRecord,
    MemoryBudget,
    Now,
    SetTimer,
    Ticket,
    TimerKey,
    TimerKind,
)
from broker.coordinator.group.member import Member
from broker.coordinator.group.refusals import refused
from kafka_protocol.errors import ErrorCode

Then = Callable[[ErrorCode | None, Now], Decision]


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Settings that decisions depend on; replaced as a whole when one changes.

    Attributes:
        session_timeout_min_ms: `group.min.session.timeout.ms`.
        session_timeout_max_ms: `group.max.session.timeout.ms`.
        initial_rebalance_delay_ms: `group.initial.rebalance.delay.ms`.
        group_size_max: `group.max.size`.
        offset_metadata_bytes_max: `offset.metadata.max.bytes`; in UTF-16 units, as Kafka counts.
        offsets_retention_ms: `offsets.retention.minutes`, in ms.
        new_member_join_timeout_ms: How long a new member's first JoinGroup may be parked; Kafka has
            no setting for it.
    """

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2_147_483_647
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    new_member_join_timeout_ms: int = 300_000


@dataclass(slots=True)
class Totals:
    """Counts of a state since it was loaded, for metrics.

    Attributes:
        completed_rebalances: Generations that became stable.
        commits: Offsets that commits wrote, also those of transactions.
        deletions: Offsets removed by OffsetDelete.
    """

    completed_rebalances: int = 0
    commits: int = 0
    deletions: int = 0


@dataclass(slots=True)
class DecisionBuilder:
    """Collects the parts of one decision."""

    limits: GroupLimits
    now: Now
    totals: Totals
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    records: list[GroupRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    then: Then | None = None
    _left: int | None = None
    _is_new: bool = False
    _is_refused: bool = False

    def answer(self, ticket: Ticket | None, response: Any) -> None:
        """Add the answer to a request; None: no request waits."""
        if ticket is not None:
            self.answers.append(Answer(ticket, response))

    def write(self, record: GroupRecord, then: Then | None = None) -> None:
        """Add a record; `then` makes the next decision after its commit or failure."""
        self.records.append(record)
        if then is not None:
            assert self.then is None
            self.then = then

    def done(self) -> Decision:
        """Build the decision."""
        if not (self.records or self.answers or self.timers):
            return NOTHING
        answers = tuple(self.answers)
        then = self.then
        if then is not None and answers:
            then = _refusing_first(answers, then)
        return Decision(tuple(self.records), answers, tuple(self.timers), then)

    # Memory.

    def begin_group(self, size_bytes: int) -> None:
        """Charge the memory that this decision takes from now on to a new group."""
        self._is_new, self._left = True, self.budget.left(is_new=True) - size_bytes

    def takes(self, more_bytes: int) -> bool:
        """Reserve memory beyond this decision's earlier ones; False if too little is left."""
        if self._left is None:
            self._left = self.budget.left(is_new=False)
        if more_bytes > self._left:
            if not self._is_refused:
                self._is_refused = True
                self.budget.on_refused(self._is_new)
            return False
        self._left -= more_bytes
        return True

    # Timers.

    def keep_alive(
        self, group: ClassicGroup, member: Member, timeout_ms: int | None = None
    ) -> None:
        """Restart a member's session.

        A timer is set only if there is none, or if it would fire too late. A timer that fires early
        is set again. So heartbeats do not change timers.
        """
        timeout = member.timeouts.session_ms if timeout_ms is None else timeout_ms
        member.deadline_ms = self.now.monotonic_ms + timeout
        if member.timer_ms is None or member.timer_ms > member.deadline_ms:
            member.timer_ms = member.deadline_ms
            self.timers.append(SetTimer(session_key(group, member.member_id), member.deadline_ms))

    def set_group_timer(self, group: ClassicGroup, kind: TimerKind, delay_ms: int) -> None:
        """Set the timer of the join phase or the sync phase."""
        at_ms = self.now.monotonic_ms + delay_ms
        self.timers.append(SetTimer(TimerKey(group.group_id, kind, ""), at_ms))

    def cancel_group_timer(self, group: ClassicGroup, kind: TimerKind) -> None:
        """Cancel the timer of the join phase or the sync phase."""
        self.timers.append(CancelTimer(TimerKey(group.group_id, kind, "")))

    def cancel_session(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the session timer of a removed member."""
        self.timers.append(CancelTimer(session_key(group, member_id)))


def _refusing_first(answers: tuple[Answer, ...], then: Then) -> Then:
    """Refuse answers that wait for the commit if the commit fails."""

    def follow(error: ErrorCode | None, now: Now) -> Decision:
        decision = then(error, now)
        if error is None:
            return decision
        refusals = tuple(refused(answer, error) for answer in answers)
        return replace(decision, answers=refusals + decision.answers)

    return follow


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    """The key of the session timer of a member or a pending id."""
    return TimerKey(group.group_id, TimerKind.SESSION, member_id)
