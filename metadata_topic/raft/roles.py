"""What a replica of the metadata log can be, and what it can become.

The table is the whole truth: a change that is not in it is a bug here and stops the node.

Source: KIP-595; KIP-996 for `PROSPECTIVE`, the pre-vote that keeps a partitioned voter from raising
epochs.
"""

from enum import Enum
from typing import Final


class Role(Enum):
    """States of a replica within one epoch or on the way to the next."""

    UNATTACHED = "unattached"
    """Knows an epoch but no leader in it."""
    PROSPECTIVE = "prospective"
    """Asks whether it would win, without raising the epoch."""
    CANDIDATE = "candidate"
    """Raised the epoch, voted for itself and asks for votes."""
    LEADER = "leader"
    """Won; the only one that appends."""
    FOLLOWER = "follower"
    """Fetches from a leader it knows."""
    RESIGNED = "resigned"
    """Was leader, gives up in favour of others and votes no more in this epoch."""


TRANSITIONS: Final[dict[Role, frozenset[Role]]] = {
    Role.UNATTACHED: frozenset(
        # A sole voter needs no pre-vote.
        {Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}
    ),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.CANDIDATE, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.LEADER, Role.FOLLOWER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.RESIGNED, Role.FOLLOWER}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.CANDIDATE, Role.FOLLOWER}),
}


def check_transition(old: Role, new: Role) -> None:
    """Assert that `old` may become `new`."""
    assert new in TRANSITIONS[old], f"a {old.value} replica cannot become {new.value}"
