"""DeleteRecords of a leader with followers: each of them has noted the new log start first."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.delete_records import DeleteRecordsHandler
from kafka_protocol.errors import ErrorCode
from runtime.executors import Pool
from tests.support.worlds.data_plane import World, finish, start
from tests.support.worlds.leading import Cluster, asked
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.remote_log import impatient

VERSION = 2


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Deletion:
    """A request to delete the first record of `t`, and its answer."""

    def __init__(self, world: World, *, timeout_ms: int = 60_000, pool: Pool | None = None) -> None:
        self._handler = DeleteRecordsHandler(world.replicas, pool or world.pool, impatient(world))
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
        question = {"topics": topics, "timeout_ms": timeout_ms}
        self._answer = asyncio.ensure_future(start(self._handler, VERSION, question))

    async def is_answered(self) -> bool:
        await turns(10)
        return self._answer.done()

    async def answer(self) -> tuple[int, int]:
        """Error code and low watermark."""
        answer = finish(self._handler, VERSION, await self._answer)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark


async def with_a_record(
    world: World, isr: Sequence[int], fetching: Sequence[int] = (2,)
) -> Cluster:
    """One record, which these have fetched."""
    cluster = Cluster(world, isr=tuple(isr))
    world.append("t", b"1")
    for replica in fetching:
        await asked(cluster.fetcher, cluster.question(replica, 1))
    return cluster


async def noted(cluster: Cluster, replica: int) -> None:
    """A follower says that the new log start is on its disk."""
    await asked(cluster.fetcher, cluster.question(replica, 1, log_start_offset=1))


async def test_deleted_records_are_gone_when_every_member_has_noted_it(world: World) -> None:
    cluster = await with_a_record(world, (1, 2))
    deletion = Deletion(world)
    assert not await deletion.is_answered()
    await noted(cluster, 2)
    assert await deletion.answer() == (0, 1)


async def test_deleted_records_wait_for_the_slowest_member(world: World) -> None:
    cluster = await with_a_record(world, (1, 2, 3), (2, 3))
    deletion = Deletion(world)
    assert not await deletion.is_answered()
    await noted(cluster, 2)
    assert not await deletion.is_answered()
    await noted(cluster, 3)
    assert await deletion.is_answered()


async def test_deleted_records_wait_for_a_member_that_is_asked_for(world: World) -> None:
    cluster = await with_a_record(world, (1, 2), (2, 3))
    deletion = Deletion(world)
    assert not await deletion.is_answered()
    assert cluster.in_sync.maximal_isr == {1, 2, 3}
    await noted(cluster, 2)
    assert not await deletion.is_answered()
    await noted(cluster, 3)
    assert await deletion.is_answered()


async def test_deleted_records_wait_no_more_for_a_member_that_has_left(world: World) -> None:
    cluster = await with_a_record(world, (1, 2, 3), (2, 3))
    deletion = Deletion(world)
    await noted(cluster, 2)
    assert not await deletion.is_answered()
    cluster.commit(1, 2)
    assert await deletion.is_answered()


async def test_deleted_records_of_a_leadership_that_ends_are_answered(world: World) -> None:
    await with_a_record(world, (1, 2, 3), (2, 3))
    deletion = Deletion(world)
    assert not await deletion.is_answered()
    world.change("t", leader=2, leader_epoch=5)
    assert await deletion.is_answered()


async def test_deleted_records_of_a_silent_member_time_out(world: World) -> None:
    await with_a_record(world, (1, 2))
    code, _ = await Deletion(world, timeout_ms=1).answer()
    assert code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_cut_is_not_answered_while_eligible_replicas_may_lead(world: World) -> None:
    cluster = Cluster(world, isr=(1, 2), min_insync_replicas=2)
    world.append("t", b"1")
    await asked(cluster.fetcher, cluster.question(2, 1))
    deletion = Deletion(world)
    cluster.commit(1)  # 2 is an eligible leader replica now, and has not heard of the log start
    assert not await deletion.is_answered()
    cluster.commit(1, 2)
    await noted(cluster, 2)
    assert (await deletion.answer())[0] == 0


async def test_a_cut_is_refused_when_another_leads_once_it_is_durable(world: World) -> None:
    await with_a_record(world, (1, 2))
    pool = HeldPool()
    deletion = Deletion(world, pool=pool)
    await pool.until_held()
    world.change("t", leader=2, leader_epoch=5)
    pool.release()
    assert await deletion.answer() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_new_leader_deletes_nothing_before_it_knows_what_is_committed(
    world: World,
) -> None:
    cluster = await with_a_record(world, (1, 2), ())
    world.change("t", leader=2, leader_epoch=5)
    world.change("t", leader=1, leader_epoch=6)
    deletion = Deletion(world)
    assert not await deletion.is_answered()
    for log_start in (0, 1):
        fetched = cluster.question(2, 1, current_leader_epoch=6, log_start_offset=log_start)
        await asked(cluster.fetcher, fetched)
        await turns(5)
    assert await deletion.answer() == (0, 1)


async def test_a_waiting_deletion_reports_the_lost_leadership_only_to_its_client(
    world: World,
) -> None:
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
    await with_a_record(world, (1, 2), ())
    world.change("t", leader=2, leader_epoch=5)
    world.change("t", leader=1, leader_epoch=6)
    deletion = Deletion(world)
    await turns(5)
    world.change("t", leader=2, leader_epoch=7)
    assert (await deletion.answer())[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    gc.collect()
    assert said == []
