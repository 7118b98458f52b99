"""How many partitions are validated: the count after each change, and what health says of it."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.replica.partition import Partition
from broker.replica.validation import LATE_AFTER_MS, Standing, ValidationTally
from local_log.config import LogConfig
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.sorted_map import SortedMap
from rlm.link.messages import CopiedThrough, Loss, LossFound, Report, ValidationWithdrawn
from tests.support.sim.clock import ManualClock
from tests.support.worlds.data_plane import World

PARTITIONS = 6
OTHER_NODE = 2


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, has_tier=True)
    yield world
    world.logs.close(clean=False)


def report_for(partition: Partition, number: int) -> Report:
    names = (partition.topic_id, partition.partition, partition.leader_epoch)
    reports: tuple[Report, ...] = (
        CopiedThrough(*names, -1, -1, -1, 0),
        LossFound(*names, Loss.HOLE),
        ValidationWithdrawn(*names),
    )
    return reports[number % len(reports)]


def walked(world: World) -> tuple[int, int]:
    """Unvalidated and concerned partitions, counted one by one."""
    hosted = world.replicas.partitions.values()
    tiered = [each for each in hosted if each.is_leader and each.log.config.is_tiered]
    return sum(each.is_unvalidated for each in tiered), len(tiered)


def configured(world: World, topic: str, config: LogConfig) -> None:
    world.configs[topic] = config
    delta = MetadataDelta(MetadataImage())
    delta.changed_configs.add((ResourceType.TOPIC, topic))
    image = MetadataImage(
        topics_by_name=SortedMap.of(world.topics),
        topics_by_id=SortedMap.of({topic.id: topic for topic in world.topics.values()}),
    )
    world.replicas.apply(image, delta)


@pytest.mark.parametrize("seed", range(5))
def test_the_count_is_that_of_a_walk_after_whatever_happens(world: World, seed: int) -> None:
    rng = random.Random(seed)
    topics = ("tiered", "plain")
    world.add_topic("tiered", PARTITIONS, remote_storage_enable=True)
    world.add_topic("plain", PARTITIONS)
    assert (world.validations.unvalidated, world.validations.concerned) == (PARTITIONS, PARTITIONS)

    def partition() -> Partition:
        return rng.choice(list(world.replicas.partitions.values()))

    def validated() -> None:
        one = partition()
        one.take_report(report_for(one, rng.randrange(3)))

    def led_anew() -> None:
        one = partition()
        leader = rng.choice((world.replicas.node_id, OTHER_NODE))
        world.change(one.topic, one.partition, leader=leader, leader_epoch=one.leader_epoch + 1)

    def tiered_or_not() -> None:
        topic = rng.choice(topics)
        if topic in world.topics:
            config = replace(LogConfig(), remote_storage_enable=rng.random() < 0.5)
            configured(world, topic, config)

    def made_again() -> None:
        topic = rng.choice(topics)
        world.topics.pop(topic)
        world.apply()
        world.add_topic(topic, PARTITIONS, remote_storage_enable=rng.random() < 0.5)

    happenings: list[Callable[[], None]] = [validated] * 6 + [led_anew] * 3 + [tiered_or_not]
    for number in range(200):
        rng.choice([*happenings, made_again] if number % 20 == 0 else happenings)()
        assert (world.validations.unvalidated, world.validations.concerned) == walked(world)
    for topic in topics:
        world.topics.pop(topic)
    world.apply()
    assert (world.validations.unvalidated, world.validations.concerned) == (0, 0)


def test_health_counts_what_is_validated_and_is_late_only_after_minutes() -> None:
    clock = ManualClock()
    tally = ValidationTally(clock)
    assert (tally.progress(), tally.late()) == ((), ())
    clock.advance(10 * LATE_AFTER_MS)  # the broker's life does not count, only the validating
    for _ in range(3):
        tally.move(Standing.NOT_CONCERNED, Standing.UNVALIDATED)
    tally.move(Standing.UNVALIDATED, Standing.VALIDATED)
    assert (tally.progress(), tally.late()) == (("validated 1 of 3 partitions",), ())
    clock.advance(LATE_AFTER_MS - 1)
    assert not tally.late()
    clock.advance(1)
    (late,) = tally.late()
    assert late.startswith("log validation takes long: 1 of 3 partitions are done after 5 min")
    for _ in range(2):
        tally.move(Standing.UNVALIDATED, Standing.VALIDATED)
    assert (tally.progress(), tally.late()) == ((), ())
    tally.move(Standing.VALIDATED, Standing.UNVALIDATED)
    assert (tally.progress(), tally.late()) == (("validated 2 of 3 partitions",), ())
