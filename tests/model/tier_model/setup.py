"""One run's bounds and rules.

Each rule has the value of docs/tiering.md as its default; another value is a mutant.
"""

from dataclasses import dataclass
from typing import Any

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Setup:
    """Bounds first, then the rules in the order of docs/tiering.md."""

    # ---- where the run begins
    logs: tuple[Numbers, Numbers] = ((1, 1), (1, 1))
    roll: tuple[int, int] = (1, 1)  # records per segment on A and on B
    grow: Numbers = (0,) * 8  # a new leader of epoch e fills its log to this length at once
    late: Numbers = ()  # the leader of epoch e appends up to this length, a record a step
    starts: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))  # (local, log) start of each
    copied: tuple[Any, ...] = ()  # FINISHED segments: (first, last, epochs[, LEADER_EPOCH index])
    copied_pairs: tuple[tuple[int, int], ...] = ()  # of their owners, default (1, 1)
    first_ordered: int = 0  # what retention or DeleteRecords said before
    first_epoch: int = 1
    first_unclean: int = 0  # leader epoch of the last unclean election before
    fresh: bool = False  # A has just become leader, its barrier is not written yet
    solo: bool = False  # B takes no part
    # ---- how much may happen
    ids: int = 3
    tier_deaths: int = 0
    elections: int = 0
    unclean: int = 0  # so many of them
    raises: int = 0
    raise_to: Numbers = ()
    timeouts: int = 0
    retried_puts: int = 0
    topic_losses: int = 0
    cut_any: bool = False  # a loss of the metadata topic takes durable records, too
    damages: int = 0
    kinds: tuple[str, ...] = ()  # of damage, see damage.py
    hurt: tuple[bool, bool] = (True, True)  # A, B may restart damaged
    expire: tuple[bool, bool] = (True, False)  # local expiry on A, on B
    deletions: int = 1  # so many of one pass side by side
    lag: tuple[int, int] = (2, 1)  # a leader's, a follower's reader is at most so far behind
    split: bool = False  # CopiedThrough and the expiry that it allows are two steps
    read_one: bool = False  # readers may stop after any record
    lost: bool = False  # a dead writer's records may be lost, too
    # ---- fence and barrier
    fence: bool = True
    fence_refused: bool = True  # a refused transition raises the fence, too
    barrier: bool = True
    empty_barrier: bool = True
    ready_first: bool = True  # nothing is copied, expired or deleted before the owner has judged
    fresh_pair: bool = True  # a time-out of a metadata write ends the incarnation
    counter_lost: str = "highest"  # anew | highest: goes on above the highest pair read
    epoch_jump: bool = True  # an owner below the fence gets a leader epoch above it
    unclean_known: str = "records"  # given | records: field 10004 | nobody
    recovering_keeps: str = "epoch"  # what the image says of it: flag (Kafka's) | epoch
    recovered_at: str = "barrier"  # the image forgets it: election | when the barrier is read back
    # ---- copy, CopiedThrough, expiry
    started_first: bool = True
    copied_through_durable: bool = True  # only after FINISHED is read back
    copied_through: str = "run"  # highest | run of offsets from the log start on
    copied_through_checked: str = "chain"  # none | epoch | chain
    deadline_sent: bool = True  # the copy maximum counts from before STARTED is sent
    killed: bool = True  # a copy that outlives its maximum ends its process
    cancel_first: bool = True  # Unassign is answered after tasks have ended
    chain_kept: bool = True  # the chain reaches below the local start
    lookup_epoch: bool = True
    cut_regions: bool = True
    # ---- deletion
    deleted_first: bool = True  # objects go only after DELETE_STARTED is read back
    wait_late_puts: bool = True
    aged_first: bool = True  # DELETE_FINISHED only after the copy maximum
    ascending: bool = True  # in offset order, one by one
    overlap: str = "earlier"  # off | earlier | any
    covered: str = "pairs"  # offsets | pairs: (epoch, offset)
    offchain: str = "below"  # part | none | below: kept until wholly below the log start
    own_at_once: bool = False  # dangling ids of an own dead incarnation at once
    recopy_first: bool = False  # dangling ids only after a new copy
    raise_all: bool = False  # a log start is answered when followers have checkpointed it
    # ---- leader change
    start_rule: str = (
        "rows"  # rows | remote: max(own checkpoint, remote start), as Kafka and our first wording
    )
    carry: str = "epoch"  # carried log starts count: text | epoch | whole | off, see judgement.py
    barrier_carries: bool = False  # the barrier repeats what accepted records carry
    tagless: Numbers = ()  # owners of these leader epochs write no log start
    red_expires: bool = False  # a red owner goes on with CopiedThrough
    # ---- log start unknown, chain lost, hole, log end lost
    vacuous: bool = False  # an empty run of FINISHED segments settles an unknown log start
    run_whole: bool = True  # FINISHED on the chain below the run: a hole, no log start
    nothing_ever: str = "red"  # no record ever accepted, checkpoint lost: red | copies | local
    chain_check: bool = True
    sound: bool = True  # FINISHED off the chain, no unclean election since: something is wrong
    pick: str = "fits"  # the chain's segment: repeated | first | older | fits
    touching: bool = True  # a rebuilt chain may end where the local log begins
    hole_check: bool = True
    end_check: str = "any"  # off | finished | segments | any: carried log starts, too
    produce_waits: bool = True  # nothing is appended before the owner has judged
    follow: str = "unclean"  # truncates: any | judged: to a green leader | unclean: only after one
    elect_whole: bool = True  # way out of a lost log end: elect the replica that has it
    adopt_keeps: bool = True  # beginning above a lost end keeps the local batches
    gap_proves: bool = False  # a run of nothing but a gap settles an unknown log start
    ways: frozenset[str] = frozenset({"chain", "unknown", "named", "hole", "end"})
    # ---- cache ahead of the topic
    drop_ahead: str = "epoch"  # found by: epoch | end (offset) | never: trusted
    rebarrier: bool = True
    rebarrier_next: bool = True  # under the next incarnation
    # ---- what is demanded
    check_red: bool = True  # nobody is red before a fault
    check_answered: bool = False  # an answered log start never comes back
    check_fence: bool = True
    check_followers: bool = False  # no follower throws away what its leader has lost
