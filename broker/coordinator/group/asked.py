"""A JoinGroup as the decisions see it."""

from typing import Any, NamedTuple

from broker.coordinator.group.decision import Caller, Ticket
from broker.coordinator.group.member import Timeouts


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
