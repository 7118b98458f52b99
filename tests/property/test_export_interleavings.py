"""Exports of one topic to one target, some at the same time, some killed: each row exactly once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.jobs.values import OvertakenError
from tests.support.export.places import Killed, Steps
from tests.support.export.topics import ToyTopic, export_once
from tests.support.export.worlds import DirectoryWorld, TableWorld, World

DEADLINE_S = 20


class Process(Steps):
    """An export that takes one step each time that it is told to."""

    def __init__(self, world: World, topic: ToyTopic, name: str) -> None:
        super().__init__()
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._dies = False
        self.ended = False
        self._thread = threading.Thread(target=self._main, args=(world, topic, name), daemon=True)
        self._thread.start()
        self._settle()

    def run(self, do: Callable[..., Any], *args: Any) -> Any:
        self._waits.release()
        assert self._go.acquire(timeout=DEADLINE_S)
        if self._dies:
            raise Killed
        return do(*args)

    def step(self, *, dies: bool = False) -> None:
        self._dies = dies
        self._go.release()
        self._settle()

    def end(self) -> None:
        """Let it die wherever it stands: an example may be given up in the middle."""
        self._dies = True
        self._go.release(1_000)
        self._thread.join(DEADLINE_S)

    def _settle(self) -> None:
        assert self._waits.acquire(timeout=DEADLINE_S)
        if self.ended:
            self._thread.join(DEADLINE_S)

    def _main(self, world: World, topic: ToyTopic, name: str) -> None:
        try:
            export_once(world.ledger(self), topic, name)
        except (Killed, OvertakenError):
            pass
        finally:
            self.ended = True
            self._waits.release()


@pytest.mark.parametrize("make", [DirectoryWorld, TableWorld])
@given(data=st.data())
def test_rows_are_there_once_whatever_comes_between(
    make: Callable[[], World], data: st.DataObject
) -> None:
    world, topic = make(), ToyTopic()
    count = data.draw(st.integers(2, 3), label="exports")
    alive: list[Process] = []
    try:
        take_steps(data, world, topic, count, alive)
    finally:
        for one in alive:
            one.end()
    export_once(world.ledger(Steps()), topic, "last")
    assert world.rows() == topic.rows


def take_steps(
    data: st.DataObject, world: World, topic: ToyTopic, count: int, alive: list[Process]
) -> None:
    started = 0
    while alive or started < count:
        choices = (
            ["start"] * (started < count) + ["step"] * 30 * bool(alive) + ["kill"] * bool(alive)
        )
        what = data.draw(st.sampled_from(choices))
        if what == "start":
            alive.append(Process(world, topic, f"run{started}"))
            started += 1
            topic.grow()
        else:
            one = data.draw(st.sampled_from(alive))
            one.step(dies=what == "kill")
        alive[:] = [one for one in alive if not one.ended]
        seen = world.rows()
        assert len(seen) == len(set(seen)), "a row is there twice"
