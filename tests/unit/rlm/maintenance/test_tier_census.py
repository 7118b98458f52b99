"""Thousands of partitions are counted a slice a turn, and without waiting for anybody's turn."""

import threading
from types import SimpleNamespace

from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import PartitionSettings
from rlm.maintenance.assigned_partition import AssignedPartition
from rlm.maintenance.census import NAMED_MAX, SLICE_PARTITIONS, Census, Counted, PartitionKey
from rlmm.store import partition_key
from rlmm.topic_based.lookups import Lookups
from rlmm.topic_based.roles import Role, Stage, Tracked
from runtime.health_reasons import HealthReason
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler

TOPIC_ID = b"t" * 16
COUNT = 3 * SLICE_PARTITIONS + 1


def led(number: int) -> AssignedPartition:
    tip = TopicIdPartition(TOPIC_ID, number, "orders")
    known = AssignedPartition(tip, 1, True, PartitionSettings(), 1)
    known.validated = True
    return known


class Scene:
    def __init__(self, count: int) -> None:
        self.partitions: dict[PartitionKey, AssignedPartition] = {
            (TOPIC_ID, number): led(number) for number in range(count)
        }
        self.asked: list[int] = []
        self.scheduler = ManualScheduler(ManualClock())
        self.found: list[Counted] = []
        self.census = Census(self.partitions, self.is_ready, self.scheduler)

    def is_ready(self, tip: TopicIdPartition) -> bool:
        self.asked.append(tip.partition)
        return tip.partition % 2 == 0

    def turn(self) -> int:
        """How many partitions the next turn looks at."""
        before = len(self.asked)
        timers = self.scheduler._queue
        _, _, timer = timers.pop(0)
        timer.fn()
        return len(self.asked) - before


def test_a_turn_looks_at_a_slice_and_the_last_tells_all() -> None:
    scene = Scene(COUNT)
    scene.census.take(scene.found.append)
    assert len(scene.asked) == SLICE_PARTITIONS
    scene.census.take(scene.found.append)  # one at a time
    assert len(scene.asked) == SLICE_PARTITIONS
    turns = [scene.turn() for _ in range(3)]
    assert turns == [SLICE_PARTITIONS, SLICE_PARTITIONS, 1]
    (found,) = scene.found
    assert (found.assigned, found.ready) == (COUNT, COUNT // 2 + 1)
    scene.census.take(scene.found.append)
    assert len(scene.asked) == COUNT + SLICE_PARTITIONS


def test_what_goes_between_two_turns_is_not_counted() -> None:
    scene = Scene(SLICE_PARTITIONS + 2)
    scene.census.take(scene.found.append)
    del scene.partitions[TOPIC_ID, SLICE_PARTITIONS]
    scene.turn()
    assert scene.found[0].assigned == SLICE_PARTITIONS + 1


def test_of_many_unhealthy_ones_the_first_are_named_and_the_others_counted() -> None:
    scene = Scene(NAMED_MAX + 7)
    for known in scene.partitions.values():
        known.unhealthy = HealthReason.METADATA.text(error="gone")
    scene.census.take(scene.found.append)
    unhealthy_ones = scene.found[0].unhealthy_ones()
    assert len(unhealthy_ones) == NAMED_MAX + 1
    assert unhealthy_ones[-1].reason.startswith("and 7 more partitions are unhealthy")


def test_readiness_is_answered_while_the_engine_has_its_turn() -> None:
    tip = TopicIdPartition(TOPIC_ID, 3, "orders")
    role = Role(tip, None, SimpleNamespace(), stage=Stage.READY)  # type: ignore[arg-type]
    engines = threading.Lock()
    nothing: object = None
    lookups = Lookups(
        engines,
        nothing,  # type: ignore[arg-type]
        nothing,  # type: ignore[arg-type]
        {partition_key(tip): role},
        dict[int, Tracked](),
        5,
    )
    answers: list[object] = []

    def ask() -> None:
        answers.extend((lookups.is_ready(tip), lookups.unreadable(0)))

    with engines:
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(30)
        assert answers == [True, ()]
