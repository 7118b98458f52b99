"""One member of a classic group: its protocols, its assignment and its parked requests."""

from typing import Any, NamedTuple

from broker.coordinator.group.decision import Caller, Ticket

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of a member's protocols, in the order of preference."""


def protocols_of(request: Any) -> Protocols:
    """The protocols of a JoinGroup request, in its order."""
    return tuple((each.name, each.metadata) for each in request.protocols)


MEMBER_BYTES = 1_000
"""Approximate memory of a member without texts, with its timer."""


def protocol_bytes(protocols: Protocols) -> int:
    """Memory of a member's protocols."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Timeouts(NamedTuple):
    """Session timeout and rebalance timeout of a member."""

    session_ms: int
    rebalance_ms: int


class Member:
    """A member that joined (a pending one is only an id, see `ClassicGroup.pending`).

    Attributes:
        member_id: Assigned by the coordinator.
        instance_id: `group.instance.id` of a static member (KIP-345), None for a dynamic one.
        caller: The client that first joined as this member.
        timeouts: Of its session and of rebalances.
        join_ticket: Its parked JoinGroup, or None.
        sync_ticket: Its parked SyncGroup, or None.
        is_new: Until its first JoinGroup is answered. It has no id for heartbeats yet, and its
            parked JoinGroup does not keep its session alive.
        deadline_ms: End of its session (monotonic) without another sign of life.
        timer_ms: When its session timer fires, None without one. It may be earlier than the
            deadline: a heartbeat moves only the deadline.
    """

    __slots__ = (
        "assignment",
        "caller",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "sync_ticket",
        "timeouts",
        "timer_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        caller: Caller,
        timeouts: Timeouts,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.caller = caller
        self.timeouts = timeouts
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.is_new = False
        self.deadline_ms = 0
        self.timer_ms: int | None = None

    @property
    def is_static(self) -> bool:
        """True if it has a `group.instance.id`."""
        return self.instance_id is not None

    @property
    def waits_by_request(self) -> bool:
        """True if a parked request replaces its heartbeats; not for a new member."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    @property
    def kept_bytes(self) -> int:
        """Approximate memory of the member."""
        texts = len(self.member_id) + len(self.caller.client_id) + len(self.instance_id or "")
        return MEMBER_BYTES + texts + protocol_bytes(self.protocols) + len(self.assignment)

    def protocol_names(self) -> set[str]:
        """Names of its protocols, without duplicates."""
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str) -> bytes:
        """Its metadata for this protocol; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class Asked(NamedTuple):
    """A JoinGroup and its sender.

    Attributes:
        ticket: Ticket of the request.
        caller: Sender of the request.
        request: The decoded request.
        version: Version of the request.
        uuid: Fresh, for the id of a new member.
    """

    ticket: Ticket
    caller: Caller
    request: Any
    version: int
    uuid: str

    @property
    def timeouts(self) -> Timeouts:
        """The member's timeouts; version 0 has one for both."""
        session_ms = self.request.session_timeout_ms
        is_one = self.version == 0
        return Timeouts(session_ms, session_ms if is_one else self.request.rebalance_timeout_ms)
