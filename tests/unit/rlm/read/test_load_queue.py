"""Demand before read-ahead, in the queue and in the loads that stand in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlm.read.loads import LoadQueue, Loads, Wait
from rlm.workers import READER_POOL
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.tier.log_in_memory import InlineWorkers


@dataclass(eq=False)
class Job:
    urgent: bool = False
    reader: str = ""


def test_what_somebody_waits_for_comes_first_and_each_line_is_in_order() -> None:
    queue = LoadQueue(lambda: 9)
    ahead, urgent = [Job(), Job()], [Job(urgent=True), Job(urgent=True)]
    for job in (ahead[0], urgent[0], ahead[1], urgent[1]):
        queue.add(job)
    assert [queue.take() for _ in range(5)] == [*urgent, *ahead, None]


def test_readers_take_turns_however_much_each_of_them_waits_for() -> None:
    queue = LoadQueue(lambda: 9)
    many = [Job(urgent=True, reader="many") for _ in range(50)]
    for job in many:
        queue.add(job)
    assert queue.take() is many[0]
    one, other = Job(urgent=True, reader="one"), Job(reader="other")
    queue.add(one)
    queue.add(other)
    queue.hurry(other)
    assert {id(queue.take()), id(queue.take()), id(queue.take())} >= {id(one), id(other)}


def test_loads_ahead_leave_threads_free_and_continue_when_one_ends() -> None:
    queue = LoadQueue(lambda: 1)
    first, second = Job(), Job()
    queue.add(first)
    queue.add(second)
    assert queue.take() is first
    assert queue.take() is None
    assert queue.ended(first), "the take that was refused is to be made up for"
    assert queue.take() is second
    assert not queue.ended(second)


def test_loads_that_somebody_waits_for_give_no_place_to_those_ahead() -> None:
    queue = LoadQueue(lambda: 1)
    urgent, first, second = Job(urgent=True), Job(), Job()
    for job in (urgent, first, second):
        queue.add(job)
    assert queue.take() is urgent
    assert queue.take() is first
    queue.ended(urgent)
    assert queue.take() is None, "one ahead runs still"
    assert queue.ended(first)
    assert queue.take() is second


def test_a_hurried_load_overtakes_and_a_dropped_one_is_not_taken() -> None:
    queue = LoadQueue(lambda: 9)
    jobs = [Job(), Job(), Job()]
    for job in jobs:
        queue.add(job)
    queue.hurry(jobs[2])
    assert queue.drop(jobs[0])
    assert [queue.take() for _ in range(3)] == [jobs[2], jobs[1], None]
    assert not queue.drop(jobs[1]), "it has begun"


@dataclass
class Letters:
    """A load whose values are its keys; it breaks at one of them."""

    keys: Sequence[str]
    loaded: list[str]
    freed: list[int]
    begun: list[str]
    fail_at: int = 99

    def reserve(self) -> bool:
        return True

    def run(self, damaged: int) -> Iterator[str]:
        self.begun += self.keys
        for number, key in enumerate(self.keys):
            if number == self.fail_at:
                raise OSError("broken")
            yield key

    def arrived(self, number: int, value: str) -> None:
        self.loaded.append(value)

    def failed(self, error: BaseException, is_final: bool) -> None:
        assert isinstance(error, OSError)

    def free(self, number: int) -> None:
        self.freed.append(number)


class Harness:
    def __init__(self) -> None:
        self.clock, self.workers = ManualClock(), InlineWorkers()
        scheduler = ManualScheduler(self.clock)
        self.loads = Loads(self.workers, self.clock, scheduler, 100)
        self.loaded: list[str] = []
        self.freed: list[int] = []
        self.begun: list[str] = []

    def ahead(self, owner: int, keys: list[str], fail_at: int = 99) -> None:
        assert self.loads.ahead(owner, Letters(keys, self.loaded, self.freed, self.begun, fail_at))

    def ask(self, key: str, woken: list[str], reader: str = "") -> Wait:
        load = Letters([key], self.loaded, self.freed, self.begun)
        return self.loads.ask(load, lambda: woken.append(key), reader)


def test_one_job_brings_many_keys_each_as_it_comes() -> None:
    harness, woken = Harness(), list[str]()
    harness.ahead(1, ["a", "b", "c"])
    assert harness.ask("b", woken) is Wait.LOADING
    harness.workers.turn()
    assert harness.loaded == ["a", "b", "c"]
    assert woken == ["b"]
    assert harness.loads.in_flight == 0


def test_a_job_that_fails_midway_wakes_who_waits_and_blames_one_key() -> None:
    harness, woken = Harness(), list[str]()
    harness.ahead(1, ["a", "b", "c"], fail_at=1)
    harness.ask("c", woken)
    harness.workers.turn()
    assert (harness.loaded, harness.freed, woken) == (["a"], [1, 2], ["c"])
    assert harness.loads.has_failed("b")
    assert not harness.loads.has_failed("c")
    assert harness.ask("c", woken) is Wait.LOADING


def test_a_demand_overtakes_what_is_loaded_ahead() -> None:
    harness = Harness()
    harness.ahead(1, ["a"])
    harness.ahead(2, ["b"])
    harness.ask("c", [])
    harness.ask("b", [])
    harness.workers.turn()
    assert harness.loaded == ["c", "b", "a"]


def test_a_demand_for_what_waits_for_a_thread_ahead_takes_a_free_one() -> None:
    harness = Harness()
    harness.workers.sizes[READER_POOL] = 2  # one of them loads ahead
    harness.workers.held = {"post"}  # no load ends
    harness.ahead(1, ["a"])
    harness.ahead(2, ["b"])
    harness.workers.turn()
    assert harness.begun == ["a"]
    harness.ask("b", [])
    harness.workers.turn()
    assert harness.begun == ["a", "b"]


def test_what_was_to_be_loaded_for_a_vanished_reader_is_not() -> None:
    harness = Harness()
    harness.ahead(1, ["a", "b"])
    harness.ahead(2, ["c"])
    harness.loads.forget_reader(1)
    harness.workers.turn()
    assert (harness.loaded, harness.freed) == (["c"], [0, 1])
    assert harness.loads.in_flight == 0


def test_who_waits_for_room_is_called_in_turn_with_the_others() -> None:
    harness, woken = Harness(), list[str]()
    harness.workers.held.add(READER_POOL)
    asked = [harness.ask(f"many-{n}", woken, "many") for n in range(150)]
    assert asked.count(Wait.FULL) == 50
    assert harness.ask("one", woken, "one") is Wait.FULL
    harness.loads.set_bound(102)
    assert len(woken) >= 2
    assert "one" in woken[:2]
