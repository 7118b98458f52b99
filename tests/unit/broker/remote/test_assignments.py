"""Telling a tier of thousands of partitions: some at a time, and in the end what is true."""

from collections.abc import Sequence

import pytest

from broker.remote.assignments import SLICE_PARTITIONS, Assignments
from broker.replica.hosting import ReplicaEvents
from local_log.config import LogConfig
from rlm.link.messages import Assign, Unassign
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.remote_reads import Hosted, Log, Replicas, Tier

COUNT = 3 * SLICE_PARTITIONS


class Scene:
    def __init__(self) -> None:
        self.hosted = [Hosted(log=Log(), partition=number) for number in range(COUNT)]
        self.replicas, self.tier = Replicas(*self.hosted), Tier()
        self.scheduler = ManualScheduler(ManualClock())
        self.assignments = Assignments(
            self.replicas,  # type: ignore[arg-type]
            self.tier,  # type: ignore[arg-type]
            self.scheduler,
            lambda partition: True,
            lambda: 7,
        )

    @property
    def told(self) -> list[Assign | Unassign]:
        return [message for message, _ in self.tier.asked]

    def rest(self) -> None:
        for _ in range(COUNT):
            self.scheduler.advance(1)

    def change(
        self,
        *,
        led: Sequence[Hosted] = (),
        configured: Sequence[Hosted] = (),
        gone: Sequence[Hosted] = (),
    ) -> None:
        events = ReplicaEvents(led=tuple(led), configured=tuple(configured), gone=tuple(gone))  # type: ignore[arg-type]
        self.assignments.on_replicas(events)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_new_tier_is_told_of_some_partitions_at_a_time(scene: Scene) -> None:
    scene.assignments.on_tier_up()
    assert len(scene.told) == SLICE_PARTITIONS
    scene.rest()
    assert [message.partition for message in scene.told] == list(range(COUNT))
    scene.change(led=scene.hosted)
    scene.rest()
    assert len(scene.told) == COUNT, "nothing changed"


def test_what_changes_meanwhile_is_told_in_the_end(scene: Scene) -> None:
    scene.assignments.on_tier_up()
    first, gone, changed, last = (scene.hosted[at] for at in (0, 1, 2, COUNT - 1))
    first.leader_epoch += 1
    changed.log.config = LogConfig()
    scene.change(led=[first], configured=[changed], gone=[gone, last])
    scene.rest()
    later = scene.told[SLICE_PARTITIONS:]
    again = [message for message in later if message.partition in {0, 1, 2}]
    assert [(type(each), each.partition) for each in again] == [
        (Unassign, 1),
        (Assign, 0),
        (Unassign, 2),
    ]
    assert again[1].leader_epoch == scene.hosted[0].leader_epoch
    assert not [each for each in later if each.partition == COUNT - 1], "gone before it was told"


def test_a_tier_that_comes_meanwhile_is_told_all_of_it(scene: Scene) -> None:
    scene.assignments.on_tier_up()
    scene.tier.asked.clear()
    scene.assignments.on_tier_up()
    scene.rest()
    assert [message.partition for message in scene.told] == list(range(COUNT))


def test_many_that_are_gone_at_once_are_given_up_some_at_a_time(scene: Scene) -> None:
    scene.assignments.on_tier_up()
    scene.rest()
    scene.tier.asked.clear()
    order: list[str] = []
    scene.change(gone=scene.hosted)
    scene.assignments.when_reported(lambda: order.append(f"after {len(scene.told)}"))
    assert [type(each) for each in scene.told] == [Unassign] * SLICE_PARTITIONS
    scene.rest()
    assert [each.partition for each in scene.told] == list(range(COUNT))
    assert order == [f"after {COUNT}"]
    scene.assignments.when_reported(lambda: order.append("at once"))
    assert order[1:] == ["at once"]


def test_one_that_is_gone_and_comes_again_is_given_up_in_between(scene: Scene) -> None:
    scene.assignments.on_tier_up()
    scene.rest()
    scene.tier.asked.clear()
    scene.change(gone=scene.hosted)
    again = scene.hosted[-1]
    again.leader_epoch += 1
    scene.change(led=[again])
    scene.rest()
    of_it = [type(each) for each in scene.told if each.partition == again.partition]
    assert of_it == [Unassign, Assign]
