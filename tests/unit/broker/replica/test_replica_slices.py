"""How much of a change of many partitions one iteration of the loop does."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from broker.replica import hosting, manager, reconfiguration
from broker.replica.hosting import ReplicaEvents
from broker.replica.target_replica import found_replicas
from local_log.config import LogConfig
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.records import make
from metadata_topic.image.sorted_map import SortedMap
from runtime import work
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.data_plane import World
from tests.support.worlds.one_broker import OneBroker


class Turns:
    """The loop's turns, one at a time."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []

    def add(self, fn: Callable[[], object]) -> None:
        self._waiting.append(fn)

    def one(self) -> bool:
        if not self._waiting:
            return False
        self._waiting.pop(0)()
        return True

    def all(self) -> None:
        while self.one():
            pass

    def count(self, number: Callable[[], int], before: int) -> list[int]:
        """How much it changes in each of the turns, from `before` on, where it does."""
        seen = [before, number()]
        while self.one():
            seen.append(number())
        return [after - earlier for earlier, after in pairwise(seen) if after != earlier]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    turns = Turns()
    monkeypatch.setattr(ManualScheduler, "call_soon", lambda _scheduler, fn: turns.add(fn))
    return turns


@pytest.fixture
def broker(tmp_path: Path, turns: Turns) -> OneBroker:
    """It has no topic, and nothing left to do."""
    broker = OneBroker(tmp_path)
    turns.all()
    return broker


def settings_changed(world: World, *kinds: tuple[ResourceType, str]) -> None:
    image = MetadataImage(
        topics_by_name=SortedMap.of(world.topics),
        topics_by_id=SortedMap.of({topic.id: topic for topic in world.topics.values()}),
    )
    delta = MetadataDelta(image)
    delta.changed_configs.update(kinds)
    world.replicas.apply(image, delta)


class Settings:
    """A world with topics whose settings all change with the broker's."""

    def __init__(self, path: Path) -> None:
        self.world = World(path)
        for name, count in {"a": 3, "b": 12, **{f"t{n}": 1 for n in range(20)}}.items():
            self.world.add_topic(name, count)
        self.hosted = list(self.world.replicas.partitions.values())
        self.told: list[tuple[str, int]] = []
        self.world.replicas.listeners.append(self._hear)

    def _hear(self, events: ReplicaEvents) -> None:
        self.told += [(each.topic, each.partition) for each in events.configured]

    def set(self, **values: int) -> None:
        for name in self.world.configs:
            self.world.configs[name] = replace(LogConfig(), **values)
        settings_changed(self.world, (ResourceType.BROKER, ""))

    def with_bytes(self, max_message_bytes: int) -> int:
        return sum(each.log.config.max_message_bytes == max_message_bytes for each in self.hosted)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(reconfiguration, "SLICE", 5)
    return Settings(tmp_path)


def test_a_setting_of_the_broker_reaches_few_partitions_in_a_turn(
    settings: Settings, turns: Turns
) -> None:
    settings.set(max_message_bytes=77)
    steps = turns.count(lambda: settings.with_bytes(77), 0)
    assert sum(steps) == len(settings.hosted) == 35
    assert max(steps) <= 5
    assert sorted(settings.told) == sorted((each.topic, each.partition) for each in settings.hosted)


def test_settings_that_change_once_more_meanwhile_hold_in_the_end(
    settings: Settings, turns: Turns
) -> None:
    settings.set(max_message_bytes=77)
    turns.one()
    settings.set(max_message_bytes=88)
    turns.all()
    assert settings.with_bytes(88) == 35


def test_a_topic_that_goes_meanwhile_is_left_out(settings: Settings, turns: Turns) -> None:
    settings.set(max_message_bytes=77)
    del settings.world.topics["b"]
    settings.world.apply()
    turns.all()
    assert settings.with_bytes(77) >= 23
    assert not [one for one in settings.told if one[0] == "b" and one[1] > 5]


def test_a_role_is_taken_under_the_settings_that_it_was_decided_with(
    settings: Settings, turns: Turns
) -> None:
    """A leader alone in the ISR would else commit alone, by a minimum that is raised by now."""
    settings.set(min_insync_replicas=2)
    partition = settings.world.replicas.require("t19", 0)
    settings.world.change("t19", replicas=(1, 2), isr=(1, 2))
    minima = [partition.log.config.min_insync_replicas]
    while len(partition.isr) < 2 and turns.one():
        minima.append(partition.log.config.min_insync_replicas)
    assert (minima[0], minima[-1], partition.isr) == (1, 2, (1, 2))


def test_new_logs_are_taken_over_in_turns(
    broker: OneBroker, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "SLICE", 7)
    broker.create("t", 50)
    steps = turns.count(lambda: len(broker.logs.all()), 0)
    assert steps == [7] * 7 + [1]
    broker.commit_assignments()
    turns.all()
    assert broker.ends("t", 50) == [0] * 50


def test_a_topic_that_goes_while_its_logs_are_taken_over_leaves_nothing(
    broker: OneBroker, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "SLICE", 7)
    topic_id = broker.create("t", 50)
    while not 0 < len(broker.logs.all()) < 50:
        assert turns.one()
    broker.commit(make("RemoveTopicRecord", topic_id=topic_id))
    turns.all()
    assert broker.logs.all() == []
    assert broker.replicas.partitions == {}
    assert not any((path / f"t-{n}").exists() for path in broker.paths for n in range(50))


def test_what_an_image_says_of_many_partitions_is_said_in_turns(
    broker: OneBroker, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = broker.create("t", 50)
    turns.all()
    broker.commit_assignments()
    turns.all()
    monkeypatch.setattr(manager, "SLICE", 7)
    gone: list[int] = []
    broker.replicas.listeners.append(lambda events: gone.append(len(events.gone)))
    broker.commit(make("RemoveTopicRecord", topic_id=topic_id))
    assert len(broker.replicas.partitions) == 43
    assert turns.count(lambda: len(broker.replicas.partitions), 43) == [-7] * 6 + [-1]
    assert [count for count in gone if count] == [7] * 7 + [1]
    assert broker.logs.all() == []


async def test_a_topic_is_not_settled_before_its_image_is_said(
    broker: OneBroker, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "SLICE", 7)
    broker.create("wide", 50)  # its image is being said
    small = broker.create("small", 1)
    settled = broker.replicas.hosting.settled([small])
    assert settled is not None
    hosted = asyncio.ensure_future(broker.replicas.hosting.caught_up())
    await asyncio.sleep(0)
    assert not settled.done()
    assert not hosted.done()
    turns.all()
    broker.commit_assignments()
    turns.all()
    await asyncio.wait_for(asyncio.gather(settled, hosted), 10)
    assert broker.ends("small", 1) == [0]


async def test_a_topic_of_others_is_settled_when_its_image_is_said(
    broker: OneBroker, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "SLICE", 7)
    topic_id = b"e" * 16
    state = {"topic_id": topic_id, "replicas": [9], "isr": [9], "leader": 9}
    ids = {"directories": [b"d" * 16], "leader_epoch": 0, "partition_epoch": 0}
    broker.commit(
        make("TopicRecord", name="elsewhere", topic_id=topic_id),
        *(make("PartitionRecord", 2, partition_id=n, **state, **ids) for n in range(50)),
    )
    settled = broker.replicas.hosting.settled([topic_id])
    assert settled is not None
    turns.all()
    await asyncio.wait_for(settled, 10)


async def test_a_defect_while_an_image_is_said_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = OneBroker(tmp_path)
    told: list[Exception] = []
    broker.replicas.on_failure = told.append
    monkeypatch.setattr(broker.replicas.hosting, "want", lambda _wanted: 1 // 0)
    broker.create("t", 1)
    assert [type(one) for one in told] == [ZeroDivisionError]
    await asyncio.wait_for(broker.replicas.stop(), 10)


def test_the_replicas_that_a_start_found_are_named_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    topic_id = world.add_topic("t", 5)
    (directory,) = world.logs.dirs
    monkeypatch.setattr(work, "STEP_WORK", 2)
    assert sum(1 for _ in found_replicas.steps(world.logs)) == 2
    named = dict.fromkeys((ReplicaId(topic_id, n) for n in range(5)), directory.directory_id)
    assert found_replicas(world.logs) == named
