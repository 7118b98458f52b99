"""A stop waits for each log, but not for ever for one disk."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from local_log.log.partition_log import PartitionLog
from local_log.manager.closing import close_side_by_side
from runtime.executors import InlinePool
from tests.support.worlds.local_log import open_log

P = ParamSpec("P")
T = TypeVar("T")


class HangingPool(InlinePool):
    """Makes the first call, and never another one."""

    def __init__(self) -> None:
        super().__init__()
        self.futures: list[Future[object]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if not self.futures:
            first = super().submit(fn, *args, **kwargs)
            self.futures.append(first)  # type: ignore[arg-type]
            return first
        future: Future[T] = Future()
        self.futures.append(future)  # type: ignore[arg-type]
        return future


def logs(path: Path, count: int) -> list[PartitionLog]:
    return [open_log(path / str(number)) for number in range(count)]


def test_all_are_closed_and_each_is_told(tmp_path: Path) -> None:
    opened, told = logs(tmp_path, 3), list[int]()
    assert close_side_by_side(
        opened, InlinePool(), clean=True, closed=lambda: told.append(len(told))
    )
    assert told == [0, 1, 2]


def test_a_disk_that_hangs_is_left_behind_and_is_not_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened, told, pool = logs(tmp_path, 4), list[int](), HangingPool()
    is_whole = close_side_by_side(
        opened, pool, clean=True, closed=lambda: told.append(len(told)), wait_s=0
    )
    assert not is_whole
    assert len(told) == 4
    assert all(one.cancelled() for one in pool.futures[2:]), "no further log is waited for"
    said = [line for line in caplog.messages if "no clean stop" in line]
    assert len(said) == 1
    assert "/1" in said[0]
