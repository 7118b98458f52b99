"""Until the log start is known nobody is told that offsets are gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from data_plane_harness import NOW_MS, World, call

from broker.handlers import fetch, list_offsets
from kafka_protocol.errors import ErrorCode


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.add_topic("t", remote_storage_enable=True)
    world.append("t", b"remote by now")
    log = world.log("t")
    log.truncate_fully_and_start_at(10, keep_log_start=True)
    # As after a start without log-start-offset-checkpoint: the first segment is all there is.
    log.log_start_offset, log.log_start_known = 10, False
    yield world
    world.logs.close(clean=False)


def fetched(world: World, offset: int) -> int:
    handler = fetch.make(
        world.replicas,
        limits=fetch.FetchLimits(),
        clock=world.clock,
        scheduler=world.scheduler,
        dice=world.dice,
    )
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
    fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
    }
    answer = call(handler, 12, fields)
    return int(answer.responses[0].partitions[0].error_code)


def listed(world: World, timestamp: int) -> int:
    handler = list_offsets.make(world.replicas, clock=world.clock, pool=world.pool)
    partition = {"partition_index": 0, "timestamp": timestamp}
    fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": [partition]}]}
    return int(call(handler, 7, fields).topics[0].partitions[0].error_code)


def test_a_fetch_below_is_asked_to_come_again(world: World) -> None:
    assert fetched(world, 0) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert fetched(world, 11) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(world, 10) == ErrorCode.NONE
    world.log("t").high_watermark = 10
    world.log("t").raise_log_start(5)  # the tier has found it
    assert fetched(world, 4) == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("timestamp", [-2, NOW_MS])
def test_the_earliest_offset_and_one_by_time_are_asked_to_come_again(
    world: World, timestamp: int
) -> None:
    assert listed(world, timestamp) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert listed(world, -1) == ErrorCode.NONE
    world.log("t").high_watermark = 10
    world.log("t").raise_log_start(10)
    assert listed(world, timestamp) == ErrorCode.NONE
