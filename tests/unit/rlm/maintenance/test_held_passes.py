"""Passes that wait for the store: which of them probes it, and when the others continue."""

import pytest

from kafka_protocol.types import TopicIdPartition
from rlm.maintenance.assigned_partition import COPY, EXPIRE, Pass
from rlm.maintenance.census import SLICE_PARTITIONS, PartitionKey
from rlm.maintenance.effects import PassResult
from rlm.maintenance.held_passes import HeldPasses, StoreWaits
from rsm_plugins.api import RetriableRemoteStorageError
from runtime.health_reasons import HEALTHY
from runtime.rng import Backoff
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng
from tests.support.sim.scheduler import ManualScheduler

TOPIC = b"T" * 16
PROBE_MS = 1_000
AWAY = RetriableRemoteStorageError("away")


class World:
    """Notes which passes are started; the test ends them."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler(ManualClock())
        self.started: list[int] = []

        def new_backoff() -> Backoff:
            return Backoff(PROBE_MS, PROBE_MS, 0, SeededRng(1))

        self.held = HeldPasses(self._start, new_backoff, self.scheduler)

    def _start(self, key: PartitionKey) -> None:
        self.started.append(key[1])

    def fails(self, number: int) -> None:
        """A pass meets a store that is away, and comes again by its own pauses."""
        self.held.gate.failed(TopicIdPartition(TOPIC, number, "orders"), AWAY)
        self.held.ended((TOPIC, number), is_held=False, failed=True)

    def waits(self, *numbers: int) -> None:
        """Passes end without having tried."""
        for number in numbers:
            self.held.ended((TOPIC, number), is_held=True, failed=False)

    def probes(self, number: int, *, works: bool) -> None:
        """The pass that was let try does so, and ends."""
        partition = TopicIdPartition(TOPIC, number, "orders")
        with self.held.gate.trying(partition) as may_try:
            assert may_try
            if works:
                self.held.gate.worked()
            else:
                self.held.gate.failed(partition, AWAY)
        self.held.ended((TOPIC, number), is_held=False, failed=not works)


@pytest.fixture
def world() -> World:
    world = World()
    world.fails(0)
    return world


def test_one_probes_at_a_time_and_they_go_round(world: World) -> None:
    world.waits(1, 2, 3)
    assert world.started == []
    world.scheduler.advance(PROBE_MS)
    assert world.started == [1]
    world.probes(1, works=False)
    world.waits(1)
    for _ in range(2):
        world.scheduler.advance(PROBE_MS)
        world.probes(world.started[-1], works=False)
        world.waits(world.started[-1])
    world.scheduler.advance(PROBE_MS)
    assert world.started == [1, 2, 3, 1]


def test_a_pass_that_comes_again_by_itself_waits_behind_the_others(world: World) -> None:
    world.waits(1, 2, 1)
    world.scheduler.advance(PROBE_MS)
    assert world.started == [2]


def test_after_a_probe_that_worked_all_continue_at_once(world: World) -> None:
    world.waits(1, 2, 3)
    world.scheduler.advance(PROBE_MS)
    world.probes(1, works=True)
    assert world.started == [1, 2, 3]
    assert world.held.count == 1, "the one that failed comes again by its own pauses"


def test_they_continue_at_once_when_a_call_that_is_no_probe_works(world: World) -> None:
    """A call that had begun before: no probe is due for a while."""
    world.waits(1, 2)
    world.held.gate.worked()
    world.held.ended((TOPIC, 9), is_held=False, failed=False)
    assert world.started == [1, 2]
    world.scheduler.advance(10 * PROBE_MS)
    assert world.started == [1, 2]


def test_a_probe_that_its_pass_has_no_use_for_is_the_next_ones(world: World) -> None:
    world.waits(1, 2)
    world.scheduler.advance(PROBE_MS)
    world.held.ended((TOPIC, 1), is_held=False, failed=False)  # there was nothing to copy
    assert world.started == [1, 2]


def test_a_partition_that_has_gone_does_not_probe(world: World) -> None:
    world.waits(1, 2)
    world.held.forget((TOPIC, 1))
    world.scheduler.advance(PROBE_MS)
    assert world.started == [2]
    assert world.held.count == 2, "the one that failed, and the one that probes"


def test_health_is_unhealthy_only_while_a_partition_waits_for_the_store() -> None:
    """Else a topic deleted while the store was away leaves its broker permanently unhealthy."""
    scheduler, rng = ManualScheduler(ManualClock()), SeededRng(1)
    waits = StoreWaits(
        lambda _kind, _key: None, lambda: Backoff(PROBE_MS, PROBE_MS, 0, rng), scheduler
    )
    one, other = (TopicIdPartition(TOPIC, number, "orders") for number in range(2))
    waits.gate(EXPIRE).failed(one, AWAY)
    waits.ended(EXPIRE, one, is_held=False, failed=True)
    waits.ended(EXPIRE, other, is_held=True, failed=False)
    (unhealthy,) = waits.unhealthy_ones()
    assert "deleting waits for the store, 2 partitions: away" in str(unhealthy)
    waits.forget(one)
    scheduler.advance(PROBE_MS)  # the other probes
    assert len(waits.unhealthy_ones()) == 1
    waits.forget(other)
    assert waits.unhealthy_ones() == []
    assert not waits.gate(EXPIRE).is_open, "the next that needs it probes"


def test_very_many_continue_in_slices_while_the_store_works(world: World) -> None:
    world.waits(*range(1, SLICE_PARTITIONS + 3))
    world.held.gate.worked()
    world.held.ended((TOPIC, 0), is_held=False, failed=False)
    assert len(world.started) == SLICE_PARTITIONS
    world.fails(1)
    world.scheduler.advance(1)
    assert len(world.started) == SLICE_PARTITIONS
    world.held.try_all()
    world.scheduler.advance(1)
    assert len(world.started) == SLICE_PARTITIONS + 2


def test_a_pass_that_was_held_says_what_the_last_try_found() -> None:
    one = Pass(COPY, Backoff(PROBE_MS, 60_000, 0, SeededRng(1)))
    one.failed("away")
    assert one.backoff.next_ms() == PROBE_MS
    assert one.passed(PassResult(is_held=True), 5_000) == 5_000
    assert "away" in one.unhealthy
    assert one.backoff.next_ms() == 2 * PROBE_MS
    one.passed(PassResult(), 5_000)
    assert (one.unhealthy, one.backoff.next_ms()) == (HEALTHY, PROBE_MS)
