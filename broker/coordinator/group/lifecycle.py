"""The states of a classic group, and which follows which, as a table.

docs/groups.md has the same as a diagram; a test keeps the two alike.
"""

from enum import StrEnum


class GroupType(StrEnum):
    """Which protocol a group goes by, as ListGroups v5 names it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class GroupStatus(StrEnum):
    """State of a classic group, as DescribeGroups and ListGroups name it.

    EMPTY: no members; committed offsets may be there.
    PREPARING_REBALANCE: members are asked to join again; JoinGroups are parked.
    COMPLETING_REBALANCE: the generation is known; SyncGroups wait for the leader's assignment.
    STABLE: each member has its assignment.
    DEAD: the group is gone, or its partition moved to another coordinator.
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
"""From each state, the states that may follow."""


def may_follow(before: GroupStatus, after: GroupStatus) -> bool:
    """Whether the table has this transition."""
    return after in TRANSITIONS[before]
