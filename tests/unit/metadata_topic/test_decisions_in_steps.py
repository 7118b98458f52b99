"""Large decisions leave the event loop between their steps, and stay whole."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    lose_directories,
    register_broker,
    unfence_broker,
)
from metadata_topic.controller.directories import (
    FoundReplicas,
    ReplicaId,
    assign_directories,
)
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.elections import balance_leaders, elect_unclean_leaders
from metadata_topic.controller.leader_epochs import UsedEpoch, raise_leader_epochs
from metadata_topic.controller.result import ControllerResult, Decided
from metadata_topic.controller.topic_deletion import delete_topics
from metadata_topic.controller.topic_specs import Assignment, TopicDefaults, TopicSpec
from metadata_topic.controller.topics import CreatedTopic, create_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import RECORD_WORK
from metadata_topic.quorum.log.decision_batches import BatchPlace, decide_and_prepare
from metadata_topic.quorum.node import MetadataNode, MetadataUnavailable, NodeIdentity
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from runtime.work import STEP_WORK, Pace, Steps, Stepwise, at_once, run_in_steps, stepwise
from tests.support.samples.metadata import apply, cluster_of, registration_of
from tests.support.sim.ports import simulated
from tests.support.worlds.one_node import looped, sole_voter

MANY = 3_000
IDS = [number.to_bytes(16, "big") for number in range(1, MANY + 1)]


def creation(image: MetadataImage, count: int = MANY) -> Steps[ControllerResult[Any]]:
    return create_topics.steps(
        image,
        [TopicSpec(f"topic-{number}", 1, 1) for number in range(count)],
        defaults=TopicDefaults(),
        topic_ids=IDS,
        validate_config=lambda _name, _configs: None,
    )


def of_one_topic(image: MetadataImage, topic: TopicSpec) -> Steps[ControllerResult[Any]]:
    return create_topics.steps(
        image,
        [topic],
        defaults=TopicDefaults(),
        topic_ids=[b"o" * 16],
        validate_config=lambda _name, _configs: None,
    )


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    """Two brokers, and 3,000 topics whose partition the first of them leads."""
    before = cluster_of(1)
    image = apply(before, at_once(creation(before)).records)
    registered = register_broker(image, registration_of(2))
    image = apply(image, registered.records)
    return apply(
        image, unfence_broker(image, broker_id=2, broker_epoch=registered.response).records
    )


def step_count(steps: Steps[object]) -> int:
    return sum(1 for _ in steps)


REPLICAS = [ReplicaId(topic_id, 0) for topic_id in IDS]
DIRECTORY = bytes([101]) * 16

Deciding = Callable[[MetadataImage, int], Steps[Any]]
DECIDING: dict[str, Deciding] = {
    "create topics": lambda image, _epoch: creation(
        image, MANY
    ),  # all of them exist: refused one by one
    "create a topic of many partitions": lambda image, _epoch: of_one_topic(
        image, TopicSpec("wide", MANY, 1)
    ),
    "create a topic with replicas given": lambda image, _epoch: of_one_topic(
        image, TopicSpec("wide", assignments=tuple(Assignment(n, (1,)) for n in range(MANY)))
    ),
    "delete topics": lambda image, _epoch: delete_topics.steps(
        image, [(f"topic-{number}", ZERO_UUID) for number in range(MANY)]
    ),
    "register": lambda image, _epoch: register_broker.steps(image, registration_of(1, life=2)),
    "note what a registration found": lambda image, _epoch: register_broker.steps(
        image,
        registration_of(1),
        found=FoundReplicas(dict.fromkeys(REPLICAS, DIRECTORY), {}, is_missing_some=False),
    ),
    "fence": lambda image, epoch: fence_broker.steps(image, broker_id=1, broker_epoch=epoch),
    "leave": lambda image, epoch: begin_controlled_shutdown.steps(
        image, broker_id=1, broker_epoch=epoch
    ),
    "assign directories": lambda image, epoch: assign_directories.steps(
        image, broker_id=1, broker_epoch=epoch, assignments=dict.fromkeys(REPLICAS, DIRECTORY)
    ),
    "raise leader epochs": lambda image, epoch: raise_leader_epochs.steps(
        image, broker_id=1, broker_epoch=epoch, found=dict.fromkeys(REPLICAS, UsedEpoch(0, 5))
    ),
}


@pytest.mark.parametrize("what", DECIDING)
def test_a_decision_over_many_partitions_has_short_steps(what: str, image: MetadataImage) -> None:
    steps = DECIDING[what](image, image.brokers[1].epoch)
    assert step_count(steps) >= MANY * RECORD_WORK // STEP_WORK - 1


def test_unfencing_has_short_steps(image: MetadataImage) -> None:
    # Nobody but the first broker has replicas, so without it there is no leader.
    epoch = image.brokers[1].epoch
    fenced = apply(image, fence_broker(image, broker_id=1, broker_epoch=epoch).records)
    steps = unfence_broker.steps(fenced, broker_id=1, broker_epoch=epoch)
    assert step_count(steps) >= MANY * RECORD_WORK // STEP_WORK - 1


def test_a_lost_directory_without_replicas_has_short_steps(image: MetadataImage) -> None:
    # Each partition of the broker is decided on, and none of them changes.
    spare = b"s" * 16
    broker = replace(image.brokers[1], log_dirs=(*image.brokers[1].log_dirs, spare))
    steps = lose_directories.steps(image, broker, [spare])
    assert step_count(steps) >= MANY * RECORD_WORK // STEP_WORK - 1


@pytest.mark.parametrize("elect", [balance_leaders, elect_unclean_leaders])
def test_elections_in_vain_have_short_steps(
    elect: Stepwise[..., object], image: MetadataImage
) -> None:
    epoch = image.brokers[1].epoch
    fenced = apply(image, fence_broker(image, broker_id=1, broker_epoch=epoch).records)
    steps = elect.steps(fenced, defaults=ElectionRules(is_unclean=True))
    assert step_count(steps) >= MANY * RECORD_WORK // STEP_WORK - 1


def test_preparing_has_short_steps_as_well() -> None:
    image = cluster_of(1)
    result = at_once(creation(image))
    place = BatchPlace(image.provenance.end_offset, 1, 0, image.provenance.end_offset)
    steps = decide_and_prepare.steps(lambda _: result, image, place, batch_bytes_max=8 << 20)
    # Encoding, reading back and replaying.
    assert step_count(steps) >= 3 * (len(result.records) * RECORD_WORK // STEP_WORK - 1)


def test_a_small_decision_is_one_step() -> None:
    image = cluster_of(1)
    place = BatchPlace(image.provenance.end_offset, 1, 0, image.provenance.end_offset)
    steps = decide_and_prepare.steps(
        lambda now: creation(now, 3), image, place, batch_bytes_max=8 << 20
    )
    assert step_count(steps) == 0


class Home:
    """A metadata directory for one node after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ports = looped(simulated(7))
        plan = FormatPlan("cluster", 1, (path,), path, directory_ids={path: b"D" * 16})
        format_directory(plan, disk=self.ports.disk, clock=self.ports.clock, rng=self.ports.rng)

    def run(self, work: Callable[[MetadataNode], Awaitable[None]]) -> MetadataNode:
        """Start a node, work, and end as a killed process does."""

        async def run() -> MetadataNode:
            identity = NodeIdentity(node_id=1, cluster_id="cluster", directory_id=b"D" * 16)
            node = MetadataNode(self.path, identity, self.ports, sole_voter(static=True))
            await node.begin()
            await work(node)
            return node

        return asyncio.run(run())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.run(joined)
    return home


async def joined(node: MetadataNode) -> None:
    epoch = await node.submit(lambda now: register_broker.steps(now, registration_of(1)))
    await node.submit(lambda now: unfence_broker.steps(now, broker_id=1, broker_epoch=epoch))


async def until_begun(began: list[object]) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    assert began


def noted(began: list[object], now: MetadataImage) -> Decided[list[CreatedTopic]]:
    began.append(now)
    return creation(now)


def test_others_run_between_the_steps_and_the_next_decision_waits_for_all(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        before, began = node.log_end_offset, []
        ends: list[int] = []
        large = asyncio.ensure_future(node.submit(partial(noted, began)))
        await until_begun(began)
        next_one = asyncio.ensure_future(node.submit(partial(of_one_topic, topic=TopicSpec("one"))))
        while not large.done():
            ends.append(node.log_end_offset)
            assert len(node.image.topics_by_id) in (0, MANY, MANY + 1)
            await asyncio.sleep(0)
        assert ends.count(before) > 50
        assert [topic.error for topic in await large] == [None] * MANY
        await next_one
        assert len(node.image.topics_by_id) == MANY + 1

    home.run(work)
    assert len(home.run(no_work).image.topics_by_id) == MANY + 1


def test_a_kill_between_two_steps_leaves_nothing(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        began: list[object] = []
        task = asyncio.ensure_future(node.submit(partial(noted, began)))
        await until_begun(began)
        assert not task.done()

    home.run(work)
    assert len(home.run(no_work).image.topics_by_id) == 0


def test_a_node_that_fails_meanwhile_writes_nothing_more(home: Home) -> None:
    async def work(node: MetadataNode) -> None:
        before, began = node.log_end_offset, []
        task = asyncio.ensure_future(node.submit(partial(noted, began)))
        await until_begun(began)
        node._replica.fail(OSError("the disk"))
        with pytest.raises(MetadataUnavailable):
            await task
        assert node.log_end_offset == before

    home.run(work)


async def no_work(node: MetadataNode) -> None:
    """Only start."""


def test_a_stepwise_function_gives_the_same_at_once_and_in_steps() -> None:
    @stepwise
    def add_up(numbers: list[int]) -> Steps[int]:
        total, pace = 0, Pace()
        for number in numbers:
            total += number
            if pace.is_step_over(STEP_WORK):
                yield
        return total

    numbers = list(range(100))
    assert add_up(numbers) == asyncio.run(run_in_steps(add_up.steps(numbers))) == sum(numbers)
    assert step_count(add_up.steps(numbers)) == len(numbers)
