"""Bounds of a run, and every rule as a switch: a mutant is one of them turned."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """See the README for the meaning of each; all rules are on unless a mutant says otherwise."""

    # -- bounds
    voters: tuple[int, ...] = (1, 2, 3)
    observers: tuple[int, ...] = ()
    epochs: int = 3
    changes: int = 1
    """Voter changes that are appended, in all."""
    crashes: int = 0
    disks: int = 0
    """Disks that are lost, in all."""
    # -- a change
    one_at_a_time: bool = True
    own_epoch_committed: bool = True
    by_one_voter: bool = True
    # -- what the voters of a log are
    in_force_when_appended: bool = True
    taken_back_by_truncation: bool = True
    directory_ids: bool = True
    # -- the leader
    leader_outside_not_counted: bool = True
    leads_until_committed: bool = True
    # -- an election
    stands_until_removal_is_committed: bool = True
    votes_as_an_observer: bool = True
