"""Pools of the tier: threads that come, go, hang and are replaced."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import pytest

from rlm.workers import POSTED_MS, ElasticPool, LoopWorkers
from tests.support.sim.clock import ManualClock

LIMIT_S = 20


class Jobs:
    """Jobs that say when they have begun and end when they are told to."""

    def __init__(self, pool: ElasticPool) -> None:
        self.pool = pool
        self.begun: list[threading.Event] = []
        self.may_end: list[threading.Event] = []
        self.ended: list[threading.Event] = []
        self.thread_ids: dict[int, int] = {}

    def add(self) -> int:
        number = len(self.begun)
        for events in (self.begun, self.may_end, self.ended):
            events.append(threading.Event())

        def job() -> None:
            self.thread_ids[number] = threading.get_ident()
            self.begun[number].set()
            assert self.may_end[number].wait(LIMIT_S)
            self.ended[number].set()

        self.pool.submit(job)
        return number

    def wait_begun(self, number: int) -> None:
        assert self.begun[number].wait(LIMIT_S)

    def end(self, number: int) -> None:
        self.may_end[number].set()
        assert self.ended[number].wait(LIMIT_S)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_jobs(clock: ManualClock) -> Iterator[Callable[[int], Jobs]]:
    made: list[Jobs] = []

    def make(threads: int) -> Jobs:
        made.append(Jobs(ElasticPool("test", threads, clock)))
        return made[-1]

    yield make
    for jobs in made:
        jobs.pool.stop()
        for event in jobs.may_end:
            event.set()


def test_no_more_threads_than_allowed_and_the_rest_waits(make_jobs: Callable[[int], Jobs]) -> None:
    jobs = make_jobs(2)
    for _ in range(3):
        jobs.add()
    jobs.wait_begun(0)
    jobs.wait_begun(1)
    assert not jobs.begun[2].is_set()
    assert jobs.pool.queued == 1
    jobs.end(0)
    jobs.wait_begun(2)
    assert jobs.pool.queued == 0


def test_an_abandoned_thread_is_replaced_and_takes_no_further_job(
    make_jobs: Callable[[int], Jobs],
) -> None:
    jobs = make_jobs(1)
    hanging, second = jobs.add(), jobs.add()
    jobs.wait_begun(hanging)
    jobs.pool.abandon(jobs.thread_ids[hanging])
    jobs.wait_begun(second)
    assert jobs.thread_ids[second] != jobs.thread_ids[hanging]
    third = jobs.add()
    jobs.end(hanging)  # it returns after all
    assert not jobs.begun[third].is_set(), "the pool has one thread, and that is busy"
    jobs.end(second)
    jobs.wait_begun(third)
    assert jobs.thread_ids[third] == jobs.thread_ids[second]


def test_abandoning_a_thread_that_runs_nothing_changes_nothing(
    make_jobs: Callable[[int], Jobs],
) -> None:
    jobs = make_jobs(1)
    jobs.pool.abandon(threading.get_ident())
    first, second = jobs.add(), jobs.add()
    jobs.wait_begun(first)
    assert not jobs.begun[second].is_set()


def test_a_pool_grows_and_shrinks_while_it_runs(make_jobs: Callable[[int], Jobs]) -> None:
    jobs = make_jobs(1)
    first, second = jobs.add(), jobs.add()
    jobs.wait_begun(first)
    jobs.pool.resize(2)
    jobs.wait_begun(second)
    third = jobs.add()
    jobs.pool.resize(1)
    jobs.end(first)
    assert not jobs.begun[third].is_set(), "one thread too many has ended"
    jobs.end(second)
    jobs.wait_begun(third)


def test_idle_is_the_free_part_of_all_threads(
    make_jobs: Callable[[int], Jobs], clock: ManualClock
) -> None:
    jobs = make_jobs(4)
    assert jobs.pool.idle_share() == 1.0
    jobs.add()
    jobs.wait_begun(0)
    clock.advance(1_000)
    assert jobs.pool.idle_share() == 0.75


class SlowLoop:
    """An event loop on which each call takes a millisecond."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.ready: list[Callable[[], None]] = []

    def is_closed(self) -> bool:
        return False

    def time(self) -> float:
        return self.now_ms / 1_000

    def call_soon(self, call: Callable[[], None]) -> None:
        self.ready.append(call)

    call_soon_threadsafe = call_soon

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for call in ready:
            call()


def test_results_of_many_jobs_are_taken_in_several_turns(clock: ManualClock) -> None:
    loop, taken = SlowLoop(), list[int]()
    workers = LoopWorkers(cast("asyncio.AbstractEventLoop", loop), {}, clock)

    def take(number: int) -> None:
        taken.append(number)
        loop.now_ms += 1

    for number in range(20):
        workers.post(partial(take, number))
    assert len(loop.ready) == 1, "the loop is woken once"
    turns = 0
    while loop.ready:
        before = len(taken)
        loop.turn()
        turns += 1
        assert len(taken) - before <= POSTED_MS + 1
    assert taken == list(range(20))
    assert turns > 1
    workers.post(partial(take, 20))
    loop.turn()
    assert taken[-1] == 20
