"""Fetch: what the page cache holds is read on the event loop, no thread is asked.

A queue to a thread and back costs several times what the read does.
"""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from runtime.executors import InlinePool
from tests.support.worlds.data_plane import World, call, values_of
from tests.support.worlds.fetch import ask, make, parts

P = ParamSpec("P")
T = TypeVar("T")
SEGMENTS = 6


class CountingPool(InlinePool):
    """Counts the calls that would go to a thread."""

    calls = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.calls += 1
        return super().submit(fn, *args, **kwargs)


def fill(world: World) -> None:
    for number in range(SEGMENTS):
        world.append("t", b"a%d" % number)
        world.append("t", b"b%d" % number)
        world.log("t").roll()


@pytest.mark.parametrize("isolation_level", [0, 1], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("is_flushed", [False, True], ids=["written", "flushed"])
def test_no_thread_is_asked_for_what_is_resident(
    tmp_path: Path, is_flushed: bool, isolation_level: int
) -> None:
    pool = CountingPool()
    world = World(tmp_path, pool=pool)
    world.add_topic("t")
    fill(world)
    if is_flushed:
        world.log("t").flush()  # closed segments let go of their descriptors then
    pool.calls = 0
    for offset in range(2 * SEGMENTS):
        fields = ask(world, 12, ("t", [{"fetch_offset": offset}]))
        answer = call(make(world), 12, fields | {"isolation_level": isolation_level})
        assert values_of(parts(answer)[0].records)[0] == b"%c%d" % (b"ab"[offset % 2], offset // 2)
    assert pool.calls == 0
