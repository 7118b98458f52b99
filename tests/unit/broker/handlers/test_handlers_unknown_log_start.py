"""Until the log start is known nobody is told that offsets are gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from tests.support.worlds.data_plane import NOW_MS, World
from tests.support.worlds.remote_log import fetched, from_10, listed


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    from_10(world, remote_storage_enable=True)
    log = world.log("t")
    # As after a start without log-start-offset-checkpoint: the first segment is all there is.
    log.log_start_offset, log.log_start_known = 10, False
    yield world
    world.logs.close(clean=False)


def test_a_fetch_below_is_asked_to_come_again(world: World) -> None:
    assert fetched(world, 0) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert fetched(world, 11) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(world, 10) == ErrorCode.NONE
    world.log("t").update_high_watermark(10)
    world.log("t").raise_log_start(5)  # the tier has found it
    assert fetched(world, 4) == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("timestamp", [-2, NOW_MS])
def test_the_earliest_offset_and_one_by_time_are_asked_to_come_again(
    world: World, timestamp: int
) -> None:
    assert listed(world, timestamp)[0] == ErrorCode.REPLICA_NOT_AVAILABLE
    assert listed(world, -1)[0] == ErrorCode.NONE
    world.log("t").update_high_watermark(10)
    world.log("t").raise_log_start(10)
    assert listed(world, timestamp)[0] == ErrorCode.NONE
