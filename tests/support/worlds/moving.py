"""A log moves to another log directory, each step when the test says so."""

from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dirs import LogManager
from local_log.manager.moving import LogMove, Step
from tests.support.worlds.log_manager import ORDERS


def begun(manager: LogManager, index: int = 1) -> LogMove:
    """A move of the log of `ORDERS` whose future directory is there."""
    log, source = manager.get(ORDERS), manager.directory_of(ORDERS)
    assert log is not None
    assert source is not None
    move = manager.moves.plan(log, source, manager.dirs[index])
    manager.moves.begin(move)
    return move


def copy_all(manager: LogManager, move: LogMove) -> int:
    """Copy what is there by now; returns the steps it took."""
    steps = 0
    while step := move.next_step():
        assert manager.moves.copy(move, step)
        steps += 1
    return steps


def steps_of(move: LogMove) -> list[Step]:
    """All that is missing."""
    steps = []
    while step := move.next_step():
        steps.append(step)
    return steps


def swapped_in(manager: LogManager, move: LogMove) -> PartitionLog:
    """Copy the rest and let the copy take the place of the log; the log that continues."""
    old = move.log
    old.roll()
    old.lease.grant(truncates=True)
    try:
        swap = manager.plan_swap(manager.moves.finish(move, steps_of(move)))
        new = manager.take_swapped(swap, swap.carry_out())
    finally:
        old.lease.take_back()
    if not isinstance(new, PartitionLog):
        raise new
    return new


def moved(manager: LogManager, index: int = 1) -> PartitionLog:
    move = begun(manager, index)
    copy_all(manager, move)
    return swapped_in(manager, move)
