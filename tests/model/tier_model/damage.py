"""A broker stops and starts again with lost, cut or older files.

chain           leader-epoch-checkpoint lost; local batches give what is left
oldchain        an earlier version of it; with local batches it lacks the last one's epoch: lost
start           log start checkpoint lost;  both: this and the chain
highstart       log start raised by a flipped bit; `highstart+sidecar`: its checksum shows it, lost
dir             the log directory as at the beginning of the run;  dir+start: log start lost, too
cache           the metadata cache lost
counter         the counter of the incarnation lost, the clock set back: only the tier restarts
oldmeta         cluster metadata of an earlier time: the leader epoch falls; `oldmeta+counter`: the
                incarnation counter, too, under a clock that was set back
"""

from collections.abc import Iterator
from typing import Any

from tier_model.leadership import told_by_image
from tier_model.state import NO_EPOCH, UNKNOWN, Broker, Ownership, replaced
from tier_model.turn import Me

Changes = dict[str, Any]


def older_chains(broker: Broker, *, lost_if_local: bool) -> Iterator[Changes]:
    """Each prefix of the checkpoint's entries, as it reads below the local start."""
    log, local_start = broker.log, broker.local_start
    begins = [at for at in range(len(log)) if at == 0 or log[at] != log[at - 1]]
    for count in range(1, len(begins)):
        kept = begins[:count]
        old = tuple(log[max(at for at in kept if at <= o)] for o in range(local_start))
        if local_start < len(log) and lost_if_local:
            old = (NO_EPOCH,) * local_start
        if old != log[:local_start]:
            yield {"chain": old}


def file_damages(me: Me, kind: str) -> Iterator[Changes]:
    """The broker's fields after the damage."""
    broker, setup = me.broker, me.turn.setup
    log, local_start = broker.log, broker.local_start
    first_log, (first_local, first_start) = setup.logs[me.number], setup.starts[me.number]
    grown = (log, local_start) != (first_log, first_local)
    if kind in ("chain", "both") and local_start:
        start = UNKNOWN if kind == "both" else broker.log_start
        yield {"chain": (NO_EPOCH,) * local_start, "log_start": start}
    elif kind == "oldchain" and not broker.chain:
        yield from older_chains(broker, lost_if_local=setup.chain_check)
    elif kind in ("start", "highstart+sidecar"):
        yield {"log_start": UNKNOWN}
    elif kind == "highstart":
        yield from ({"log_start": at} for at in range(broker.log_start + 1, len(log) + 1))
    elif kind in ("dir", "dir+start") and grown:
        start = UNKNOWN if kind == "dir+start" else first_start
        restored = {"log": first_log, "local_start": first_local, "log_start": start}
        yield {**restored, "chain": None}
    elif kind == "cache":
        yield {"position": 0}


def epochs_after(me: Me, kind: str) -> range:
    """Leader epochs under which a leader may go on."""
    epoch, leads = me.turn.state.epoch, me.number == me.turn.state.leader
    if kind.startswith("oldmeta"):
        return range(1, epoch + 1) if leads else range(0)
    return range(epoch + 1, epoch + 2)


def restarts(me: Me) -> None:
    """Each restart with one damage."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    if not state.budget.damages or not setup.hurt[me.number]:
        return
    number = 0
    for kind in setup.kinds:
        if kind == "counter":
            tier_without_counter(me)
            continue
        changes: list[Changes] = list(file_damages(me, kind))
        if kind.startswith("oldmeta"):
            changes = [{}]
        counter = 1 + me.number if kind.endswith("+counter") else broker.incarnation + 2
        leads = me.number == state.leader
        for change in changes:
            for epoch in epochs_after(me, kind):
                after = {
                    "led_from": len(change.get("log", broker.log)) if leads else broker.led_from,
                    "epoch": epoch if leads else 0,
                    "unclean": told_by_image(setup, state.recovering, epoch) if leads else 0,
                    "incarnation": counter,
                    "ownership": Ownership.NONE,
                    "copying": None,
                    "deleting": (),
                    "copied_through": -1,
                }
                turn.go(
                    (f"RESTART-{kind}", me.name, number),
                    fair=False,
                    brokers=me.changed(**after | change),
                    epoch=epoch if leads else state.epoch,
                    budget=state.budget.spend(damages=1),
                    **turn.ghosts_with(me.number),
                )
                number += 1


def tier_without_counter(me: Me) -> None:
    """Only the tier restarts: its counter is gone, and the clock is behind all incarnations."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    above = me.fold.highest[1] + 1 if setup.counter_lost == "highest" else 1
    after = broker._replace(
        incarnation=above + (above + me.number + 1) % 2,
        ownership=Ownership.NONE,
        copying=None,
        deleting=(),
        copied_through=-1,
    )
    turn.go(
        ("RESTART-counter", me.name),
        fair=False,
        brokers=replaced(state.brokers, me.number, after),
        budget=state.budget.spend(damages=1),
        **turn.ghosts_with(me.number),
    )
