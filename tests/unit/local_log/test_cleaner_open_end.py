"""Transactions whose end lies behind what a walk over the keys has seen."""

from dataclasses import replace
from pathlib import Path

import pytest

from local_log.file_names import TXN_INDEX
from local_log.log.partition_log import PartitionLog
from tests.support.worlds.cleaned_logs import commit, end_transaction, put, records_of, table_of
from tests.unit.local_log.test_cleaner_runs import SETTINGS, World, fill

MANY = 40
"""More keys than fit in the smallest map."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    one.settings = replace(SETTINGS, map_bytes=4096)
    return one


def log_with_a_long_transaction(world: World, *, commits: bool) -> PartitionLog:
    """Key K is committed, then written again by a transaction of several segments."""
    log = world.log(segment_bytes=700)
    put(log, ("K", "committed"))
    transaction(log, MANY, commits=commits)
    fill(log, 20)
    return log


def transaction(log: PartitionLog, keys: int, *, commits: bool) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    put(log, ("K", "in the transaction"), base_sequence=0, **fields)  # type: ignore[arg-type]
    for number in range(1, keys):
        put(log, (f"t{number}", "v" * 90), base_sequence=number, **fields)  # type: ignore[arg-type]
    end_transaction(log, 7, commits=commits)


def forget_the_aborted(log: PartitionLog) -> None:
    for index in log.directory.glob(f"*{TXN_INDEX}"):
        index.unlink()


def values_of_k(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in records_of(log) if record.key == b"K"]


def test_an_aborted_transaction_without_an_index_in_which_the_map_fills_up(world: World) -> None:
    log = log_with_a_long_transaction(world, commits=False)
    before = records_of(log)
    forget_the_aborted(log)
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert "producer 7 aborted what is in no transaction index" in log.cleaning.uncleanable
    assert records_of(log) == before
    assert world.leftovers(log) == []


def test_an_aborted_transaction_without_an_index_that_ends_in_the_active_segment(
    world: World,
) -> None:
    """The pass reads no batch of that segment for its keys."""
    world.settings = SETTINGS
    log = world.log(segment_bytes=700)
    put(log, ("K", "committed"))
    transaction(log, 10, commits=False)
    commit(log)
    assert len(log.segments.all) > 2
    before = records_of(log)
    forget_the_aborted(log)
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert "producer 7 aborted what is in no transaction index" in log.cleaning.uncleanable
    assert records_of(log) == before


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_in_which_the_map_fills_up(world: World, *, commits: bool) -> None:
    log = log_with_a_long_transaction(world, commits=commits)
    before = table_of(log)
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert not log.cleaning.uncleanable
    assert len(world.worker.jobs) > commits
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before
    assert values_of_k(log) == [b"in the transaction" if commits else b"committed"]
