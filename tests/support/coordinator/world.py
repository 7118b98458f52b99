"""The decisions of one `GroupState`, carried out in memory: the naive twin of a shard.

Appends go to a list, commits come at once or when a test says so, timers fire when the clock is
moved. It checks what every shard may rely on: each ticket is answered once at most, a `then` only
beside records, and a generation never falls.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from broker.coordinator.group.decision import (
    Caller,
    CancelTimer,
    Decision,
    GroupRecord,
    MemoryBudget,
    Now,
    SetTimer,
    Ticket,
    TimerKey,
    append_error,
)
from broker.coordinator.group.refusals import refused
from broker.coordinator.group.state import GroupLimits, GroupState
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request

CONSUMER = "consumer"
START_WALL_MS = 1_800_000_000_000


@dataclass
class World:
    """One state, its log, its timers and its clock.

    Attributes:
        budget: bounds what all groups take.
        holds_commits: whether appended batches wait for `commit` or `fail_commits`.
        fails_appends: the error that appends raise, None while they work.
        log: (offset, record) of all that was appended.
        timers: monotonic time by key.
        answers: what each ticket was told.
        wrote_in_vain: whether an append or a commit failed, so that the log may lack something.
    """

    limits: GroupLimits = field(default_factory=lambda: GroupLimits(initial_rebalance_delay_ms=0))
    budget: MemoryBudget = field(init=False)
    holds_commits: bool = False
    fails_appends: ErrorCode | None = None

    def __post_init__(self) -> None:
        self.budget = MemoryBudget(lambda: self.state.kept_bytes)
        self.state = GroupState(self.limits, self.budget)
        self.log: list[tuple[int, GroupRecord]] = []
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[Ticket, Any] = {}
        self.wall_ms = START_WALL_MS
        self.monotonic_ms = 1_000
        self._tickets = count(1)
        self._uuids = count(1)
        self._waiting: list[Decision] = []
        self.wrote_in_vain = False
        self._told: set[Ticket] = set()
        self.state.loaded(self.now)

    @property
    def now(self) -> Now:
        """Both times."""
        return Now(self.wall_ms, self.monotonic_ms)

    # Carrying decisions out.

    def carry_out(self, decision: Decision) -> None:
        """Append, replay, set timers, answer: in the order that `decision.py` names."""
        assert decision.then is None or decision.records
        if decision.records and self.fails_appends is not None:
            self._timers(decision)
            self._failed(decision, self.fails_appends)
            return
        written = list(enumerate(decision.records, len(self.log)))
        self.log += written
        assert not self.state.replay_batch((at, one.key, one.value) for at, one in written)
        self._timers(decision)
        if decision.records and self.holds_commits:
            self._waiting.append(decision)
        else:
            self._committed(decision)

    def commit(self) -> None:
        """Commit all that was appended; what follows is committed at once."""
        self.holds_commits = False
        waiting, self._waiting = self._waiting, []
        for decision in waiting:
            self._committed(decision)

    def fail_commits(self, error: ErrorCode) -> None:
        """Let the commit of all that waits fail."""
        self.holds_commits = False
        waiting, self._waiting = self._waiting, []
        for decision in waiting:
            self._failed(decision, error)

    def _timers(self, decision: Decision) -> None:
        for timer in decision.timers:
            match timer:
                case SetTimer(key, at_ms):
                    self.timers[key] = at_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)

    def _committed(self, decision: Decision) -> None:
        for ticket, answer in decision.answers:
            self.tell(ticket, answer)
        if decision.then is not None:
            self.carry_out(decision.then(None, self.now))

    def _failed(self, decision: Decision, error: ErrorCode) -> None:
        self.wrote_in_vain = True
        error = append_error(error)
        if decision.then is not None:
            self.carry_out(decision.then(error, self.now))
            return
        for answer in decision.answers:
            self.tell(*refused(answer, error))

    def tell(self, ticket: Ticket, answer: Any) -> None:
        """Hand an answer out: to a ticket that was asked, once."""
        assert ticket in self._told, f"nobody asked {ticket}"
        assert ticket not in self.answers, f"{ticket} is answered twice"
        self.answers[ticket] = answer

    # Time.

    def advance(self, ms: int) -> None:
        """Move both clocks, firing timers at their times, in order."""
        end = self.monotonic_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda each: (self.timers[each], each))
            at_ms = self.timers[key]
            if at_ms > end:
                break
            del self.timers[key]
            self._move_to(max(at_ms, self.monotonic_ms))
            self.carry_out(self.state.timer_fired(key, self.now))
        self._move_to(end)

    def _move_to(self, monotonic_ms: int) -> None:
        self.wall_ms += monotonic_ms - self.monotonic_ms
        self.monotonic_ms = monotonic_ms

    # Requests. Each returns its ticket: `answers` has the answer once there is one.

    def ask(self, decide: Callable[[Ticket], Decision]) -> Ticket:
        """Ask anything of the state."""
        ticket = next(self._tickets)
        self._told.add(ticket)
        self.carry_out(decide(ticket))
        return ticket

    def join(
        self,
        group: str = "g",
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Any = (("range", b"meta"),),
        protocol_type: str = CONSUMER,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        client_id: str = "client",
        version: int = 3,
    ) -> Ticket:
        """JoinGroup; version 3 joins without asking for a member id first."""
        cls = request(ApiKey.JOIN_GROUP).cls
        asked = cls(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[cls.Protocols(name=name, metadata=data) for name, data in protocols],
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        uuid = f"{next(self._uuids):032x}"
        caller = Caller(client_id, "/127.0.0.1")
        return self.ask(
            lambda ticket: self.state.join(
                ticket, caller, asked, version=version, uuid=uuid, now=self.now
            )
        )

    def sync(
        self,
        group: str,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = CONSUMER,
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> Ticket:
        """SyncGroup; with assignments, the leader's."""
        cls = request(ApiKey.SYNC_GROUP).cls
        asked = cls(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                cls.Assignments(member_id=each, assignment=given)
                for each, given in (assignments or {}).items()
            ],
        )
        return self.ask(
            lambda ticket: self.state.sync(ticket, asked, version=version, now=self.now)
        )

    def heartbeat(
        self, group: str, member_id: str, generation: int, *, instance_id: str | None = None
    ) -> int:
        """Heartbeat; returns its error, it is never parked."""
        asked = request(ApiKey.HEARTBEAT).cls(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        ticket = self.ask(lambda each: self.state.heartbeat(each, asked, now=self.now))
        return int(self.answers[ticket].error_code)

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> Any:
        """LeaveGroup of (member id, instance id); returns its answer."""
        return self.answers[self.send_leave(group, *members, version=version)]

    def send_leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> Ticket:
        """LeaveGroup; its answer waits where the group becomes empty, which is written."""
        cls = request(ApiKey.LEAVE_GROUP).cls
        slots = [
            cls.Members(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in members
        ]
        asked = cls(group_id=group, member_id=members[0][0], members=slots)
        return self.ask(lambda each: self.state.leave(each, asked, version=version, now=self.now))

    def commit_offsets(
        self,
        group: str,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
        topic_id: bytes = ZERO_UUID,
        retention_ms: int = -1,
        version: int = 9,
    ) -> Ticket:
        """OffsetCommit."""
        cls = request(ApiKey.OFFSET_COMMIT).cls
        topics: dict[str, Any] = {}
        for (topic, partition), offset in offsets.items():
            slot = topics.setdefault(topic, cls.Topics(name=topic, topic_id=topic_id))
            slot.partitions.append(
                cls.Topics.Partitions(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                )
            )
        asked = cls(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        return self.ask(
            lambda ticket: self.state.commit_offsets(ticket, asked, version=version, now=self.now)
        )

    def commit_errors(self, ticket: Ticket) -> list[int]:
        """The errors of an OffsetCommit, a partition each."""
        topics = self.answers[ticket].topics
        return [int(each.error_code) for topic in topics for each in topic.partitions]

    def fetch(
        self,
        group: str,
        asked: dict[str, list[int]] | None = None,
        *,
        require_stable: bool = False,
        topic_id: bytes = ZERO_UUID,
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """OffsetFetch: (error, offset) by partition."""
        cls = request(ApiKey.OFFSET_FETCH).cls.Groups
        topics = None
        if asked is not None:
            topics = [
                cls.Topics(name=name, topic_id=topic_id, partition_indexes=parts)
                for name, parts in asked.items()
            ]
        slot = self.state.fetch_offsets(
            cls(group_id=group, topics=topics), require_stable=require_stable
        )
        return {
            (topic.name, each.partition_index): (int(each.error_code), each.committed_offset)
            for topic in slot.topics
            for each in topic.partitions
        }

    # Whole groups.

    def stable(self, group: str = "g", members: int = 2, **asked: Any) -> list[str]:
        """A stable group of new members; returns their ids, the leader's first."""
        tickets = [self.join(group, **asked) for _ in range(members)]
        if asked.get("version", 3) >= 4 and asked.get("instance_id") is None:
            ids = [self.answers[ticket].member_id for ticket in tickets]
            tickets = [self.join(group, member_id, **asked) for member_id in ids]
        self.advance(self.limits.initial_rebalance_delay_ms)
        joined = [self.answers[ticket] for ticket in tickets]
        leader = next(each for each in joined if each.leader == each.member_id)
        given = {each.member_id: each.member_id.encode() for each in joined}
        for each in sorted(joined, key=lambda one: one is not leader):
            parts = given if each is leader else None
            self.sync(group, each.member_id, each.generation_id, parts)
        return sorted(given, key=lambda one: one != leader.member_id)

    def describe(self, group: str = "g") -> Any:
        """DescribeGroups of one group."""
        return self.state.describe(group, version=6)

    def expire(self) -> int:
        """Run a pass of expiry; returns how many records it wrote."""
        return sum(self._carried_out(self.state.expire_offsets(self.now)))

    def delete_topics(self, topics: dict[str, bytes]) -> int:
        """Delete topics; returns how many records that wrote."""
        return sum(self._carried_out(self.state.topics_deleted(topics, self.now)))

    def _carried_out(self, decisions: Iterator[Decision]) -> Iterator[int]:
        for decision in decisions:
            self.carry_out(decision)
            yield len(decision.records)

    def all_offsets(self) -> dict[str, dict[tuple[str, int], tuple[int, int]]]:
        """Of each group what `fetch` says of all."""
        return {each.group_id: self.fetch(each.group_id) for each in self.state.groups()}

    def restarted(self) -> "World":
        """Another world that loaded this one's log."""
        other = World(self.limits)
        other.state = GroupState(self.limits, other.budget)
        other.budget.most = self.budget.most
        other.wall_ms, other.monotonic_ms = self.wall_ms, self.monotonic_ms
        other.log = list(self.log)
        other._uuids = self._uuids
        damaged = other.state.replay_batch((at, one.key, one.value) for at, one in self.log)
        assert not damaged, damaged
        other.carry_out(other.state.loaded(other.now))
        return other
