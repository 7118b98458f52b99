"""One member of a classic group: what it joined with, what it owns, which requests it waits for."""

from typing import Any, NamedTuple

from broker.coordinator.group.decision import Caller, Ticket

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of the protocols that a member supports, the most wanted first."""


def protocols_of(request: Any) -> Protocols:
    """The protocols of a JoinGroup request, in its order."""
    return tuple((each.name, each.metadata) for each in request.protocols)


MEMBER_BYTES = 1_000
"""About what an empty member takes, with its timer."""


def protocol_bytes(protocols: Protocols) -> int:
    """What the protocols of a member take."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Timeouts(NamedTuple):
    """How long a member may be silent, and how long it may take to join again."""

    session_ms: int
    rebalance_ms: int


class Member:
    """A member that joined (a pending one is but an id, see `ClassicGroup.pending`).

    Attributes:
        member_id: as the coordinator gave it.
        instance_id: `group.instance.id` of a static member (KIP-345), None for a dynamic one.
        caller: the client that joined first under this place.
        timeouts: of its session and of rebalances.
        join_ticket: the JoinGroup that is parked, None if none is.
        sync_ticket: likewise its SyncGroup.
        is_new: since its first JoinGroup, until that is answered: it has no id to heartbeat with,
            so not even a parked JoinGroup keeps it alive for ever.
        deadline_ms: when its session ends (monotonic) unless it is heard of.
        timer_ms: when its session's timer fires, None without one. It may be earlier than the
            deadline: a heartbeat moves the deadline only.
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
        """Whether it has a `group.instance.id`."""
        return self.instance_id is not None

    @property
    def waits_by_request(self) -> bool:
        """Whether a parked request stands for its heartbeats; that of a new member does not."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    @property
    def kept_bytes(self) -> int:
        """About what it takes in memory."""
        texts = len(self.member_id) + len(self.caller.client_id) + len(self.instance_id or "")
        return MEMBER_BYTES + texts + protocol_bytes(self.protocols) + len(self.assignment)

    def protocol_names(self) -> set[str]:
        """Names of the protocols that it supports, each once."""
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str) -> bytes:
        """What it said under this protocol; nothing where it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class Asked(NamedTuple):
    """A JoinGroup and who sent it.

    Attributes:
        ticket: to answer.
        caller: who.
        request: the decoded request.
        version: of the API.
        uuid: fresh, for the id of a new member.
    """

    ticket: Ticket
    caller: Caller
    request: Any
    version: int
    uuid: str

    @property
    def timeouts(self) -> Timeouts:
        """The member's times; v0 has one for both."""
        session_ms = self.request.session_timeout_ms
        is_one = self.version == 0
        return Timeouts(session_ms, session_ms if is_one else self.request.rebalance_timeout_ms)
