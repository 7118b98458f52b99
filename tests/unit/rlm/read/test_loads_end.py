"""How loads end: what was set aside for a key is used or given back, and each waiter is called."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from rlm.read.chunk import DamagedChunkError
from rlm.read.loads import RETRY_MAX_MS, Loads, Wait
from rlm.read.wait_queue import CALLS_MAX
from runtime.scheduler import Timer
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.tier.log_in_memory import InlineWorkers

HANGING_MS = 50


@dataclass
class Ledger:
    """A load that notes what becomes of its keys.

    Attributes:
        room: for so many keys there is memory.
        errors: by the key that fails.
        found_damaged: what each run was told of its object.
        ended: numbers of keys that arrived or were freed.
    """

    keys: list[str]
    room: int = 99
    errors: dict[str, Exception] = field(default_factory=dict)
    reserved: bool = False
    found_damaged: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def reserve(self) -> bool:
        del self.keys[self.room :]
        self.reserved = bool(self.keys)
        return self.reserved

    def run(self, damaged: int) -> Iterator[str]:
        self.found_damaged.append(damaged)
        for key in self.keys:
            if key in self.errors:
                raise self.errors[key]
            yield key

    def arrived(self, number: int, value: str) -> None:
        assert value == self.keys[number]
        self.ended.append(number)

    def failed(self, error: BaseException, is_final: bool) -> None:
        assert error in self.errors.values()

    def free(self, number: int) -> None:
        self.ended.append(number)


class CountingScheduler(ManualScheduler):
    """Counts the timers."""

    timers = 0

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> Timer:
        self.timers += 1
        return super().call_later(delay_ms, fn)


class World:
    """Loads, and threads whose results can be held back."""

    def __init__(self, in_flight_max: int) -> None:
        self.clock, self.workers = ManualClock(), InlineWorkers()
        self.scheduler = CountingScheduler(self.clock)
        self.loads = Loads(self.workers, self.clock, self.scheduler, in_flight_max)
        self.woken = Counter[object]()
        self.waits = list[Wait]()

    def ask(self, load: Ledger) -> Wait:
        wait = self.loads.ask(load, partial(self.woken.update, [len(self.waits)]))
        self.waits.append(wait)
        return wait

    def hang(self) -> None:
        """Let threads take loads whose results do not come for now."""
        self.workers.held = {"post"}
        self.workers.turn()

    def proceed(self) -> None:
        self.workers.held = set()
        self.workers.turn()


def test_a_load_that_is_refused_sets_nothing_aside() -> None:
    world = World(in_flight_max=1)
    second = Ledger(["b"])
    assert world.ask(Ledger(["a"])) is Wait.LOADING
    assert world.ask(second) is Wait.FULL
    assert not second.reserved


def test_an_abandoned_load_that_returns_does_not_end_the_next_one() -> None:
    world = World(in_flight_max=9)
    first, second, third = Ledger(["a"]), Ledger(["a"]), Ledger(["a"])
    assert world.ask(first) is Wait.LOADING
    world.hang()
    world.scheduler.advance(HANGING_MS + 1)
    world.loads.give_up_hanging(HANGING_MS)
    world.scheduler.advance(1_000)
    assert world.ask(second) is Wait.FAILING
    world.workers.held = {"remote-reader"}  # the second one has not begun
    world.workers.turn()
    assert (first.ended, second.ended) == ([0], [])
    assert world.ask(third) is Wait.LOADING
    assert not third.reserved
    world.proceed()
    assert second.ended == [0]
    assert world.woken == {0: 1, 1: 1, 2: 1}


def test_of_a_load_ahead_that_hangs_only_the_key_it_hangs_at_has_failed() -> None:
    world = World(in_flight_max=9)
    assert world.loads.ahead("reader", Ledger(["a", "b"]))
    world.hang()
    world.scheduler.advance(HANGING_MS + 1)
    world.loads.give_up_hanging(HANGING_MS)
    assert [world.loads.has_failed(key) for key in "ab"] == [True, False]


def test_a_damaged_object_is_later_read_through_the_caches_again() -> None:
    world = World(in_flight_max=9)
    load = Ledger(["d"], errors={"d": DamagedChunkError("wrong")})
    for _ in range(2):
        while world.ask(load) is not Wait.DAMAGED:
            world.proceed()
        world.scheduler.advance(RETRY_MAX_MS)
    assert load.found_damaged == [0, 1, 0, 1]


def test_waiters_on_a_failing_store_share_a_timer_and_wake_in_slices() -> None:
    world = World(in_flight_max=9)
    load = Ledger(["a"], errors={"a": OSError("broken")})
    world.ask(load)
    world.proceed()
    for _ in range(2 * CALLS_MAX):
        assert world.ask(load) is Wait.FAILING
    assert world.scheduler.timers == 1
    gone = partial(world.woken.update, ["gone"])
    assert world.loads.ask(load, gone) is Wait.FAILING
    world.loads.leave("a", gone)
    world.scheduler.advance(RETRY_MAX_MS)
    assert world.woken == dict.fromkeys(range(2 * CALLS_MAX + 1), 1)
    assert world.scheduler.timers == 2, "half of them continued in a turn of their own"


@pytest.mark.parametrize("seed", range(20))
def test_each_key_ends_once_and_each_waiter_is_called_once(seed: int) -> None:
    rng, world, made = Random(seed), World(in_flight_max=6), list[Ledger]()

    def ledger(keys: list[str]) -> Ledger:
        errors: dict[str, Exception] = {"d": DamagedChunkError("wrong")}
        if rng.randrange(2):
            errors["e"] = OSError("broken")
        made.append(Ledger(keys, rng.choice([99, 99, 1, 0]), errors))
        return made[-1]

    for _ in range(1_500):
        match rng.randrange(7):
            case 0 | 1:
                world.ask(ledger([rng.choice("abcdefgh")]))
            case 2:
                wanted = [each for each in "abcdefgh" if each not in world.loads]
                first = rng.randrange(8)
                world.loads.ahead(rng.randrange(3), ledger(wanted[first : first + 4]))
            case 3:
                world.loads.forget_reader(rng.randrange(3))
            case 4:
                world.hang()
            case 5:
                world.scheduler.advance(rng.randrange(400))
                world.loads.give_up_hanging(HANGING_MS)
            case 6:
                world.proceed()
    world.proceed()
    world.scheduler.advance(10_000)
    assert world.loads.in_flight == 0
    for load in made:
        assert sorted(load.ended) == (list(range(len(load.keys))) if load.reserved else [])
    for number, wait in enumerate(world.waits):
        assert world.woken[number] == (0 if wait is Wait.DAMAGED else 1), wait
    assert set(world.waits) == set(Wait), "the steps reach every state"
