"""Rows "leader change", "log start unknown", "tiering switched on", "cache ahead of the topic" of
docs/tiering.md §3: the tier, or the broker with it, dies before and after each of their steps."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlmm import records
from rlmm.store import MemoryStore
from rsm_plugins.segment import SegmentState
from tests.support.tier.dying_tier import Life, Machine
from tests.support.tier.life_steps import Death, DiedError
from tests.support.tier.memory_topic import StoredRecord

pytestmark = [pytest.mark.lasts(seconds=12), pytest.mark.lasts(seconds=40)]

Prepare = Callable[[Machine], None]
LONGER_THAN_COPIES_S = 20


def in_epochs(machine: Machine, count: int = 2) -> None:
    """One closed segment an epoch, all of them copied, the last one local."""
    for _ in range(count):
        machine.log.fill(1)
        Life(machine).live().buried(lands=True)
        machine.log.expire_local(keep=2)
        machine.log.restart()
    assert machine.log.local_start > 0


def nothing_written(machine: Machine) -> None:
    machine.log.append(2)


def nothing_copied(machine: Machine) -> None:
    machine.log.fill(2)


def all_copied(machine: Machine) -> None:
    in_epochs(machine)


def older_checkpoint(machine: Machine) -> None:
    """The log start was 2; its checkpoint is that of a time before, records carry it."""
    in_epochs(machine, 3)
    machine.log.delete_records(2)
    machine.log.fill(1)
    Life(machine).live().buried(lands=True)
    machine.check_readable()
    machine.log.checkpointed_log_start = 0
    machine.log.restart()


def chain_lost(machine: Machine) -> None:
    in_epochs(machine, 3)
    machine.log.lose_chain()


def log_start_unknown(machine: Machine) -> None:
    """No checkpoint, and records of Kafka, which carry none."""
    in_epochs(machine)
    log = machine.topic.logs[0]
    for at, stored in enumerate(log):
        assert stored.value is not None
        event = records.decode(stored.value)
        event = replace(event, stamp=replace(event.stamp, log_start=-1))
        log[at] = StoredRecord(stored.leader_epoch, records.encode(event))
    machine.log.lose_log_start()


def switched_on(machine: Machine) -> None:
    """Tiering begins with a log whose first segments have gone: it starts where it is local."""
    machine.log.fill(3)
    machine.log.delete_records(3)
    del machine.log.segments[0]
    machine.log.lose_log_start()
    machine.log.has_no_entry = True


def cache_ahead(machine: Machine) -> None:
    """The topic lost FINISHED of the last segment, which the cache knows; it is still local."""
    machine.cache = MemoryStore()
    in_epochs(machine)
    machine.log.fill(1)
    Life(machine).live().buried(lands=True)
    machine.log.restart()  # what it was told before the topic lost records, it was told before that
    [last] = [at for at, each in enumerate(machine.topic.logs[0]) if is_finished(each)][-1:]
    machine.topic.lose(0, last)


def is_finished(stored: StoredRecord) -> bool:
    assert stored.value is not None
    update = getattr(records.decode(stored.value), "update", None)
    return update is not None and update.state is SegmentState.COPY_SEGMENT_FINISHED


SITUATIONS: dict[str, tuple[Prepare, set[str]]] = {
    "nothing written": (nothing_written, {"land record"}),
    "nothing copied": (nothing_copied, {"put objects"}),
    "all copied": (all_copied, {"copied through"}),
    "older checkpoint": (older_checkpoint, {"log start checkpointed"}),
    "chain lost": (chain_lost, {"restore chain"}),
    "log start unknown": (log_start_unknown, {"log start checkpointed"}),
    "switched on": (switched_on, {"log start checkpointed", "put objects"}),
    "cache ahead": (cache_ahead, {"put objects"}),
}


def prepared(root: Path, prepare: Prepare) -> Machine:
    machine = Machine(root / "data", root / "store")
    prepare(machine)
    return machine


def continues(
    machine: Machine, life: Life, *, broker_died: bool, lands: bool, topic_lost: bool = False
) -> None:
    """What is left is whole, is taken over, and comes to rest."""
    was_lost = machine.log.chain_problem
    life.buried(lands=lands)
    if topic_lost:
        machine.log.copied = -1  # local segments that only lost records call remote stay meanwhile
    machine.check_readable()
    machine.log.expire_local()
    machine.check_readable()
    if broker_died:
        if was_lost:
            machine.log.lose_chain()
        machine.log.restart()
    again = Life(machine).live(LONGER_THAN_COPIES_S)
    assert again.reasons == []
    machine.check_at_rest()


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_kill_at_any_step_of_a_leader_change_loses_and_repeats_nothing(
    tmp_path: Path, name: str, is_done: bool
) -> None:
    prepare, expected = SITUATIONS[name]
    probe = Life(prepared(tmp_path / "probe", prepare)).live()
    assert expected <= set(probe.steps.names), probe.steps.names
    for at in range(1, len(probe.steps.names) + 1):
        machine = prepared(tmp_path / f"{at}", prepare)
        life = Life(machine, Death(at, is_done))
        with pytest.raises(DiedError):
            life.live()
        print(f"step {at} {life.steps.names[-1]}")
        continues(machine, life, broker_died=at % 2 == is_done, lands=at % 4 < 2)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_killed_at_any_step_under_the_next_leader_epoch_nothing_is_lost(
    tmp_path: Path, is_done: bool
) -> None:
    def elected_again(root: Path, death: Death) -> Life:
        machine = prepared(root, all_copied)
        life = Life(machine, death).live()
        machine.log.fill(1)
        machine.log.new_epoch()
        return life

    whole = elected_again(tmp_path / "whole", Death())
    first = len(whole.steps.names) + 1
    whole.is_elected()
    assert "put objects" in whole.steps.names[first:]
    for at in range(first, len(whole.steps.names) + 1):
        life = elected_again(tmp_path / f"{at}", Death(at, is_done))
        with pytest.raises(DiedError):
            life.is_elected()
        continues(life.machine, life, broker_died=at % 2 == 0, lands=at % 3 == 0)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_killed_at_any_step_while_it_reads_the_topic_again_nothing_is_lost(
    tmp_path: Path, is_done: bool
) -> None:
    def cut_back(root: Path, death: Death) -> Life:
        machine = prepared(root, all_copied)
        machine.log.fill(1)
        life = Life(machine, death).live()
        machine.topic.lose(0, len(machine.topic.logs[0]) - 1)
        return life

    whole = cut_back(tmp_path / "whole", Death())
    first = len(whole.steps.names) + 1
    whole.proceed(10)
    assert "put objects" in whole.steps.names[first:], "the lost FINISHED is made up for"
    for at in range(first, len(whole.steps.names) + 1):
        life = cut_back(tmp_path / f"{at}", Death(at, is_done))
        with pytest.raises(DiedError):
            life.proceed(10)
        continues(life.machine, life, broker_died=at % 2 == 0, lands=at % 3 == 0, topic_lost=True)
