"""A classic group: its members, its generation, and the counts used by rebalances.

The methods keep the counts right and do not depend on requests, answers or timers: `joining`,
`syncing`, `leaving` and `rebalance` make the decisions. A change costs O(1) unless it says
otherwise, because a thousand members may join at once.
"""

from typing import Any

from broker.coordinator.group.decision import Ticket
from broker.coordinator.group.lifecycle import GroupStatus, may_follow
from broker.coordinator.group.member import Member, Protocols, Timeouts
from broker.coordinator.group.protocols import (
    CONSUMER_PROTOCOL,
    select_protocol,
    subscribed_topics,
)
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response

_NOT_FOUND_FROM = 6

_GROUP_BYTES = 1_000
_PENDING_BYTES = 300
"""Approximate memory of a pending member id, with its timer."""


def group_bytes(group_id: str) -> int:
    """Approximate memory of an empty group; its offsets have its id a second time."""
    return _GROUP_BYTES + 2 * len(group_id)


class KeptBytes:
    """Approximate memory of all groups of a state; each group adds its changes."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class ClassicGroup:
    """One group of the classic protocol, or a simple group: offsets without members.

    Attributes:
        status: State in `lifecycle.TRANSITIONS`.
        previous: State before that.
        since_ms: Time of the last change of state (wall clock); None in records of old brokers.
        protocol_type: Of its members, `consumer` for consumers; None before the first member.
        protocol_name: Protocol of the generation; None in an empty group.
        generation: Rises by one with each completed join phase, never falls.
        assigning: The last generation whose assignment was received; it may not be committed yet.
        leader_id: The member that assigns partitions.
        members: By id, in the order of joining.
        static_members: Member ids by instance id.
        pending: Assigned ids that have not joined yet (KIP-394), with the monotonic time at which
            they expire.
        pending_sync: Members that have not sent a SyncGroup in this generation.
        joins: Number of parked JoinGroups.
        member_added: A member joined during the initial rebalance delay, which extends it.
        initial_delay_left_ms: Remaining extension of that delay.
        subscribed: Topics of its consumers' subscriptions; None if unknown.
        kept_bytes: Approximate memory without its offsets.
    """

    __slots__ = (
        "_all_kept",
        "_supported",
        "assigning",
        "generation",
        "group_id",
        "initial_delay_left_ms",
        "joins",
        "kept_bytes",
        "leader_id",
        "member_added",
        "members",
        "pending",
        "pending_sync",
        "previous",
        "protocol_name",
        "protocol_type",
        "since_ms",
        "static_members",
        "status",
        "subscribed",
    )

    def __init__(self, group_id: str, *, since_ms: int | None) -> None:
        self.group_id = group_id
        self.status = GroupStatus.EMPTY
        self.previous = GroupStatus.DEAD
        self.since_ms = since_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.assigning = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending: dict[str, int] = {}
        # a dict: a set takes 150 bytes more, for each group
        self.pending_sync: dict[str, None] = {}
        self.joins = 0
        self.member_added = False
        self.initial_delay_left_ms = 0
        self.subscribed: frozenset[str] | None = None
        self.kept_bytes = group_bytes(group_id)
        self._all_kept: KeptBytes | None = None
        self._supported: dict[str, int] = {}

    def count_in(self, all_kept: KeptBytes) -> None:
        """Add the group, and its later changes, to the sum of its state."""
        self._all_kept = all_kept
        all_kept.bytes += self.kept_bytes

    def count_out(self) -> None:
        """Subtract the group from the sum of its state."""
        if self._all_kept is not None:
            self._all_kept.bytes -= self.kept_bytes
            self._all_kept = None

    @property
    def can_rebalance(self) -> bool:
        """True if a rebalance may begin; not while one waits for members to join."""
        return may_follow(self.status, GroupStatus.PREPARING_REBALANCE)

    @property
    def all_joined(self) -> bool:
        """True if each member has a parked JoinGroup, and no assigned id is pending."""
        return self.joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of its members; O(members)."""
        return max((member.timeouts.rebalance_ms for member in self.members.values()), default=0)

    def move(self, status: GroupStatus, wall_ms: int) -> None:
        """Change the state; the transition table must allow it."""
        assert may_follow(self.status, status), f"{self.group_id}: {self.status} to {status}"
        self.previous, self.status, self.since_ms = self.status, status, wall_ms

    # Members.

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one becomes leader, and sets the protocol type."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.join_ticket is not None:
            self.joins += 1
        self._forget_pending(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, or a pending id; the next member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.join_ticket is not None:
                self.joins -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._forget_pending(member_id)
        self.pending_sync.pop(member_id, None)
        return member

    def rename(self, member: Member, new_id: str) -> None:
        """Change the id of a static member whose process restarted; it keeps its assignment."""
        old_id = member.member_id
        del self.members[old_id]
        member.member_id = new_id
        self._kept(len(new_id) - len(old_id))
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        assert member.instance_id is not None
        self.static_members[member.instance_id] = new_id
        # DIFFERS: Kafka keeps the old id in its list of pending SyncGroups, so that a rebalance
        # follows when that never comes. Here the new id takes its place.
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None

    def update(self, member: Member, protocols: Protocols, timeouts: Timeouts) -> None:
        """Replace a member's protocols and timeouts when it joins again."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.timeouts = timeouts

    def await_member(self, member_id: str, until_ms: int) -> None:
        """Add a pending id, with which a member shall join (KIP-394)."""
        assert member_id not in self.pending
        self.pending[member_id] = until_ms
        self._kept(_PENDING_BYTES + len(member_id))

    def _forget_pending(self, member_id: str) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._kept(-_PENDING_BYTES - len(member_id))

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set a member's part of the assignment."""
        self._kept(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def park_join(self, member: Member, ticket: Ticket) -> None:
        """Park a JoinGroup until the join phase ends."""
        if member.join_ticket is None:
            self.joins += 1
        member.join_ticket = ticket

    def take_join(self, member: Member) -> Ticket | None:
        """Remove and return the ticket of a member's parked JoinGroup."""
        ticket = member.join_ticket
        if ticket is not None:
            member.join_ticket = None
            self.joins -= 1
        return ticket

    def refusal_of(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """The error for a request with this member and instance id; None: it is valid."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Protocols.

    def supports(self, protocol_type: str, names: set[str]) -> bool:
        """True if a member with these protocols can join: all others support one of them, too."""
        if self.status is GroupStatus.EMPTY:
            return bool(protocol_type and names)
        if protocol_type != self.protocol_type:
            return False
        size = len(self.members)
        return any(self._supported.get(name, 0) == size for name in names)

    def winner(self) -> str | None:
        """The protocol that the members elect; O(members)."""
        size = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == size}
        return select_protocol(self.members.values(), candidates)

    def elect_joined_leader(self) -> bool:
        """Make a joined member the leader if the current leader has not joined.

        Returns:
            True if the leader has joined.
        """
        leader = self.members.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.join_ticket is None:
            joined = (each for each in self.members.values() if each.join_ticket is not None)
            leader = next(joined, None)
            if leader is None:
                return False
            self.leader_id = leader.member_id
        return True

    def begin_generation(self, wall_ms: int) -> None:
        """End the join phase: begin the next generation, with its protocol; O(members)."""
        self.generation += 1
        self.protocol_name = self.winner() if self.members else None
        self.learn_subscriptions()
        after = GroupStatus.COMPLETING_REBALANCE if self.members else GroupStatus.EMPTY
        self.move(after, wall_ms)
        self.pending_sync.clear()

    def learn_subscriptions(self) -> None:
        """Parse the topics that its members subscribe to; O(members)."""
        self.subscribed = None
        if self.protocol_type != CONSUMER_PROTOCOL:
            return
        name = self.protocol_name
        if not self.members:
            self.subscribed = frozenset()
        elif name is not None:
            self.subscribed = subscribed_topics(
                member.metadata(name) for member in self.members.values()
            )

    def is_subscribed(self, topic: str) -> bool:
        """True if its members subscribe to the topic, or a subscription cannot be parsed."""
        if self.subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed

    def _kept(self, more: int) -> None:
        self.kept_bytes += more
        if self._all_kept is not None:
            self._all_kept.bytes += more

    def _count(self, member: Member, by: int) -> None:
        self._kept(by * member.kept_bytes)
        for name in member.protocol_names():
            count = self._supported.get(name, 0) + by
            if count:
                self._supported[name] = count
            else:
                self._supported.pop(name, None)


def describe(group: ClassicGroup) -> Any:
    """The group's slot in DescribeGroups; only stable groups have member metadata in it."""
    cls = response(ApiKey.DESCRIBE_GROUPS).cls.Groups
    is_stable = group.status is GroupStatus.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    return cls(
        group_id=group.group_id,
        group_state=group.status.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            _member(cls.Members, member, member.metadata(protocol) if is_stable else b"")
            for member in group.members.values()
        ],
    )


def describe_missing(group_id: str, version: int, *, is_of_other_type: bool) -> Any:
    """The slot of a missing group, or of a group of another protocol."""
    cls = response(ApiKey.DESCRIBE_GROUPS).cls.Groups
    slot = cls(group_id=group_id, group_state=GroupStatus.DEAD.value)
    if version >= _NOT_FOUND_FROM:
        slot.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        ending = "is not a classic group." if is_of_other_type else "not found."
        slot.error_message = f"Group {group_id} {ending}"
    return slot


def _member(cls: Any, member: Member, metadata: bytes) -> Any:
    return cls(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.caller.client_id,
        client_host=member.caller.client_host,
        member_metadata=metadata,
        member_assignment=member.assignment,
    )
