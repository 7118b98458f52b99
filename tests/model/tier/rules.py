"""Bounds of a run, and every rule as a switch: a mutant is one of them turned."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """See the README for the meaning of each; all rules are on unless a mutant says otherwise."""

    # -- bounds: what a run begins with, and how much may happen in all
    logs: tuple[tuple[int, ...], tuple[int, ...]] = ((1,), (1,))
    """Leader epoch of each record of A and of B; A leads."""
    in_sync: tuple[int, ...] = (0, 1)
    copied: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """What is FINISHED already: (first offset, leader epoch of each offset from 0 to the last)."""
    local_starts: tuple[int, int] = (0, 0)
    roll: tuple[int, int] = (1, 1)
    """Records of a segment, by broker."""
    records: int = 2
    epochs: int = 2
    segments: int = 3
    """Remote segments that live side by side."""
    lag: int = 0
    """Records of the metadata topic that a new owner may not have read yet."""
    moves: int = 0
    unclean: int = 0
    kills: int = 0
    disks: int = 0
    """Of a replica that is not in sync."""
    tiers: int = 0
    """Tier processes that end, or take their next incarnation after a write of unknown outcome."""
    shrinks: int = 0
    raises: int = 0
    """Of the log start, by total retention."""
    deletes: int = 0
    """DeleteRecords."""
    late_reports: int = 0
    power_cuts: int = 0
    """Of all that hold the metadata topic."""
    losses: int = 0
    """Of records of the metadata topic that were durable."""
    expires: tuple[bool, bool] = (True, True)
    copies: bool = True
    # -- the metadata topic and its owners
    fence: bool = True
    barrier: bool = True
    barrier_if_empty: bool = True
    barrier_adds_none: bool = True
    """A barrier that repeats STARTED of a segment which is forgotten by then is refused."""
    new_incarnation: bool = True
    started_first: bool = True
    finished_last: bool = True
    deletes_wait_for_puts: bool = True
    deletes_in_topic_first: bool = True
    deletes_what_was_validated: bool = True
    """DELETE_STARTED of a STARTED segment is refused if that is FINISHED by then."""
    carries_start: bool = True
    carries_unclean: bool = True
    keeps_off_chain: bool = True
    deletes_wait_for_isr: bool = True
    flush_before_fetch: bool = True
    # -- what is copied, and may go locally
    whole_segments: bool = True
    """A segment counts as a copy where it lies on the own chain up to its end, below the own high
    watermark."""
    by_epoch: bool = True
    a_run: bool = True
    below_own_watermark: bool = True
    asked_again: bool = True
    forgotten_at_epoch: bool = True
    forgotten_at_loss: bool = True
    cut_at_truncation: bool = True
    report_names_epoch: bool = True
    report_fits_chain: bool = True
    link_in_order: bool = True
    """What the tier takes back arrives after what it told before."""
    # -- log starts
    joins_by_start: bool = True
    answered_by_all: bool = True
    start_falls: bool = True
    """A log of which a cut leaves nothing begins, empty, at its leader's log start."""
    # -- logs whose records were all deleted
    keeps_last_epoch: bool = True
    """The chain keeps the epoch of the last committed record, also where that was deleted."""
    validated_as_taken_over: bool = True
    """As long as nobody has validated the log: of the last record that its leader found in it."""
    # -- bootstrap
    whole_on_chain: bool = True
    """The segment lies on the leader's chain up to its end."""
    index_reaches_start: bool = True
    """The segment's index begins at the leader's log start, or below it."""
    begins_behind_segment: bool = True
    restores_chain: bool = True
    takes_start: bool = True
    end_is_committed: bool = True
    complete_first: bool = True
    start_looks_at_old: bool = True
    ends_with_epoch: bool = True
    cut_below_local_is_bootstrap: bool = True
