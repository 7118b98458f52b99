"""The states of a classic group and their transitions, as a table.

docs/groups.md has the same as a diagram; a test compares them.
"""

from enum import StrEnum


class GroupType(StrEnum):
    """The protocol of a group, as ListGroups v5 names it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class GroupStatus(StrEnum):
    """State of a classic group, as DescribeGroups and ListGroups name it.

    EMPTY: no members; it may have committed offsets. PREPARING_REBALANCE: members must join again;
    JoinGroups are parked. COMPLETING_REBALANCE: the generation has begun; SyncGroups wait for the
    leader's assignment. STABLE: each member has its assignment. DEAD: the group is deleted, or its
    partition moved to another coordinator.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[GroupStatus, frozenset[GroupStatus]] = {
    GroupStatus.EMPTY: frozenset({GroupStatus.PREPARING_REBALANCE, GroupStatus.DEAD}),
    GroupStatus.PREPARING_REBALANCE: frozenset(
        {GroupStatus.COMPLETING_REBALANCE, GroupStatus.EMPTY, GroupStatus.DEAD}
    ),
    GroupStatus.COMPLETING_REBALANCE: frozenset(
        {GroupStatus.STABLE, GroupStatus.PREPARING_REBALANCE, GroupStatus.DEAD}
    ),
    GroupStatus.STABLE: frozenset({GroupStatus.PREPARING_REBALANCE, GroupStatus.DEAD}),
    GroupStatus.DEAD: frozenset(),
}
"""The states that may follow each state."""


def may_follow(before: GroupStatus, after: GroupStatus) -> bool:
    """True if the table has this transition."""
    return after in TRANSITIONS[before]
