"""A follower that asks where to begin finds the local segments from there on for a while."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.list_offsets import ListOffsetsHandler
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from local_log.config import LONG_MAX
from rlm.link.messages import Loss
from tests.support.worlds.data_plane import HOLD_MS, NODE, World, call
from tests.support.worlds.leading import Cluster
from tests.support.worlds.local_log import retain
from tests.support.worlds.remote_log import impatient, lost

FOLLOWER, CONSUMER, DEBUGGER, STRANGER = 2, -1, -2, 9
NINE = ErrorCode.REPLICA_NOT_AVAILABLE


class Tiered:
    """The tier holds offsets up to `highest` (inclusive)."""

    def __init__(self, highest: int = 1) -> None:
        self.highest = highest

    def highest_tiered_offset(self, topic_partition: TopicPartition) -> int:
        return self.highest

    def earliest_pending_upload(self, topic_partition: TopicPartition) -> int:
        return self.highest + 1 if self.highest >= 0 else -1


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Offsets 0 and 1 are remote alone, 2 and 3 in both tiers and expired locally, 4 is local."""
    world = World(tmp_path)
    Cluster(world, isr=(NODE,), remote_storage_enable=True, local_retention_ms=0)
    log = world.log("t")
    world.append("t", b"0", b"1")
    log.roll(world.clock.wall_ms())
    world.change("t", leader_epoch=6)
    world.append("t", b"2", b"3")
    log.roll(world.clock.wall_ms())
    world.change("t", leader_epoch=7)
    world.append("t", b"4")
    world.clock.advance(1000)
    assert log.set_copied_through(1, 4)
    retain(log, world.clock.wall_ms())
    assert log.set_copied_through(3, 6)
    yield world
    world.logs.close(clean=False)


def listed(
    world: World, timestamp: int, replica_id: int, remote: Any = None
) -> tuple[int, int, int]:
    """Error, offset and leader epoch."""
    handler = ListOffsetsHandler(
        world.replicas, clock=world.clock, pool=world.pool, holding=impatient(world), remote=remote
    )
    partition = {"partition_index": 0, "timestamp": timestamp}
    fields = {"replica_id": replica_id, "topics": [{"name": "t", "partitions": [partition]}]}
    found = call(handler, 11, fields).topics[0].partitions[0]
    return found.error_code, found.offset, found.leader_epoch


def held_from(world: World) -> int:
    start: int = world.log("t").hold.start_at(world.clock.wall_ms())
    return start


def test_a_follower_gets_the_local_start_and_its_epoch_until_the_hold_ends(
    world: World,
) -> None:
    log = world.log("t")
    assert listed(world, -4, FOLLOWER) == (0, 2, 6)
    world.clock.advance(HOLD_MS - 1)
    assert retain(log, world.clock.wall_ms()) == ()
    assert log.local_log_start_offset == 2
    world.clock.advance(1)
    assert retain(log, world.clock.wall_ms())
    assert log.local_log_start_offset == 4


def test_a_second_question_renews_the_time(world: World) -> None:
    listed(world, -4, FOLLOWER)
    world.clock.advance(HOLD_MS - 1)
    listed(world, -4, FOLLOWER)
    world.clock.advance(HOLD_MS - 1)
    assert retain(world.log("t"), world.clock.wall_ms()) == ()


@pytest.mark.parametrize("asker", [CONSUMER, DEBUGGER, STRANGER, NODE])
def test_nobody_else_who_asks_for_the_local_start_has_it_held(world: World, asker: int) -> None:
    assert listed(world, -4, asker) == (0, 2, 6)
    assert held_from(world) == LONG_MAX
    assert retain(world.log("t"), world.clock.wall_ms())


@pytest.mark.parametrize(
    ("timestamp", "answer", "held"),
    [(-5, (0, 1, 4), 2), (-6, (0, 2, 6), 2), (-2, (0, 0, 4), LONG_MAX), (-1, (0, 5, 7), LONG_MAX)],
)
def test_the_start_after_tiered_offsets_is_held_and_other_ends_are_not(
    world: World, timestamp: int, answer: tuple[int, int, int], held: int
) -> None:
    assert listed(world, timestamp, FOLLOWER, Tiered(1)) == answer
    assert held_from(world) == held
    world.log("t").hold.end()
    assert listed(world, timestamp, CONSUMER, Tiered(1)) == answer
    assert held_from(world) == LONG_MAX


@pytest.mark.parametrize("timestamp", [-5, -6])
def test_where_nothing_is_tiered_nothing_is_held(world: World, timestamp: int) -> None:
    assert listed(world, timestamp, FOLLOWER, Tiered(-1)) == (0, -1, -1)
    assert held_from(world) == LONG_MAX


@pytest.mark.parametrize("timestamp", [-4, -5, -6])
@pytest.mark.parametrize("missing", ["chain", "log start"])
def test_no_follower_gets_a_start_before_chain_and_log_start_are_known(
    world: World, timestamp: int, missing: str
) -> None:
    partition = world.replicas.require("t", 0)
    if missing == "chain":
        partition.take_report(lost(Loss.CHAIN))
    else:
        partition.log.log_start_known = False
    assert listed(world, timestamp, FOLLOWER, Tiered(1))[0] == NINE
    assert held_from(world) == LONG_MAX
    assert listed(world, -4, CONSUMER) == (0, 2, 6)


@pytest.mark.parametrize("successor", [NODE, FOLLOWER])
def test_the_hold_ends_with_the_leadership(world: World, successor: int) -> None:
    listed(world, -4, FOLLOWER)
    assert held_from(world) == 2
    world.change("t", leader=successor, leader_epoch=8)
    assert held_from(world) == LONG_MAX


def test_the_hold_ends_when_all_replicas_are_in_sync(world: World) -> None:
    listed(world, -4, FOLLOWER)
    replicas = world.topics["t"].partitions[0].replicas
    world.change("t", isr=replicas[:-1])
    assert held_from(world) == 2
    world.change("t", isr=replicas)
    assert held_from(world) == LONG_MAX


def test_a_leader_without_followers_holds_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add_topic("t", remote_storage_enable=True)
    assert listed(world, -4, FOLLOWER) == (0, 0, 3)
    assert held_from(world) == LONG_MAX
