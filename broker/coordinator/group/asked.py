"""A JoinGroup as the decisions see it."""

from typing import Any, NamedTuple

from broker.coordinator.group.decision import Caller, Ticket


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
    def rebalance_timeout_ms(self) -> int:
        """How long the member may take to join again; v0 has its session time-out for both."""
        if self.version == 0:
            return int(self.request.session_timeout_ms)
        return int(self.request.rebalance_timeout_ms)
