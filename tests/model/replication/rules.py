"""Bounds of a run, and every rule as a switch: a mutant is one of them turned."""

from dataclasses import dataclass

from broker.replica.isr import InSyncReplicas


@dataclass(frozen=True)
class Rules:
    """See the README for the meaning of each; all rules are on unless a mutant says otherwise."""

    # -- bounds: how much may happen in all
    replicas: int = 2
    min_isr: int = 2
    records: int = 2
    epochs: int = 3
    kills: int = 0
    cuts: int = 0
    disks: int = 0
    stops: int = 0
    fences: int = 0
    moves: int = 0
    lost_answers: int = 0
    late_fetches: int = 0
    deletes: int = 0
    starts_flushed: bool = False
    """Whether what the run begins with is on the disks."""
    begins_with: int = 1
    """Records that are committed at the beginning."""
    is_symmetric: bool = False
    """Whether states that differ by names of replicas are one; stories lose their names by it."""
    # -- features and settings
    elr: bool = True
    unclean: bool = False
    acks_all_only: bool = False
    # -- the leader
    isr: type[InSyncReplicas] = InSyncReplicas
    leader_min_isr: int | None = None
    """min.insync.replicas as the leaders have it; None: as the controller."""
    fetch_checks_life: bool = True
    fetch_checks_epoch: bool = True
    diverging_fetch_not_noted: bool = True
    flushes_when_asking: bool = True
    flushes_when_seeing: bool = True
    flush_before_fenced: bool = False
    joins_by_log_start: bool = True
    answers_from_start: bool = True
    """The end is told to clients once the watermark has reached the first offset of the epoch."""
    deletes_at_min_isr: bool = True
    """DeleteRecords is answered at or above min.insync.replicas only."""
    # -- the follower
    chain_cut_at_end: bool = True
    truncates_by: str = "epoch"
    # -- a broker's life
    stop_flushes: bool = True
    clean_file_ends: bool = True
    clean_epoch_checked: bool = True
    same_boot_is_clean: bool = True
    # -- the controller
    register_fences: bool = True
    unclean_leaves: bool = True
    lost_leaves_isr: bool = True
    lost_leaves_elr: bool = True
    lost_leaves_last_known: bool = True
    last_member_stays: bool = True
    last_known_leads: bool | str = True
    """As in Kafka; False: only by the setting; "longest": the best log of all that left uncleanly,
    once all of them are there."""
    elr_ends: bool = True
    dead_may_lead: bool = False
    unclean_recovers: bool = True
    alter_checks_leader_epoch: bool = True
    alter_checks_partition_epoch: bool = True
    alter_refuses_fenced: bool = True
    alter_refuses_stopping: bool = True
    alter_checks_broker_epochs: bool = True
    alter_asks_recovered: bool = True
