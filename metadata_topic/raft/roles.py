"""Roles of a replica of the metadata log, and the transitions between them.

The table is complete: any other transition is a bug and stops the node.

Source: KIP-595; KIP-996 for `PROSPECTIVE`, the pre-vote that keeps a partitioned voter from raising
epochs.
"""

from enum import Enum
from typing import Final


class Role(Enum):
    """States of a replica within one epoch or on the way to the next."""

    UNATTACHED = "unattached"
    """Follows no leader: none is known in its epoch, or not its address."""
    PROSPECTIVE = "prospective"
    """Runs a pre-vote, without raising the epoch."""
    CANDIDATE = "candidate"
    """Raised the epoch, voted for itself and stands for election."""
    LEADER = "leader"
    """Won; the only one that appends."""
    FOLLOWER = "follower"
    """Fetches from a leader it knows."""
    RESIGNED = "resigned"
    """Led this epoch and gave up: neither votes nor appends in it again."""


TRANSITIONS: Final[dict[Role, dict[Role, str]]] = {
    Role.UNATTACHED: {
        Role.UNATTACHED: "a higher epoch",
        Role.PROSPECTIVE: "election timeout",
        Role.FOLLOWER: "a leader is known",
    },
    Role.PROSPECTIVE: {
        Role.UNATTACHED: "a higher epoch; lost, or timed out, without a leader",
        Role.CANDIDATE: "a majority would vote for it, or cannot do pre-votes",
        Role.FOLLOWER: "a leader is known; lost, or timed out, and has one",
    },
    Role.CANDIDATE: {
        Role.UNATTACHED: "a higher epoch",
        Role.PROSPECTIVE: "election timeout",
        Role.LEADER: "a majority voted for it",
        Role.FOLLOWER: "another leads the epoch",
    },
    Role.LEADER: {
        Role.UNATTACHED: "a higher epoch",
        Role.RESIGNED: "no majority fetches; stops; its removal is committed",
        Role.FOLLOWER: "a leader of a higher epoch",
    },
    Role.FOLLOWER: {
        Role.UNATTACHED: "a higher epoch",
        Role.PROSPECTIVE: "fetch timeout; the leader resigned",
        Role.FOLLOWER: "a leader of a higher epoch",
    },
    Role.RESIGNED: {
        Role.UNATTACHED: "a higher epoch; election timeout, at epoch + 1",
        Role.PROSPECTIVE: "the sole voter starts",
        Role.FOLLOWER: "a leader of a higher epoch",
    },
}
"""From, to, and cause."""


def check_transition(old: Role, new: Role) -> None:
    """Assert that `old` may become `new`."""
    assert new in TRANSITIONS[old], f"a {old.value} replica cannot become {new.value}"
