"""Asks one tiered log, part of which is remote, as clients do."""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.handlers.delete_records import DeleteRecordsHandler
from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.handlers.holding import Holding
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.remote.reads import RemoteFetched, RemoteRead
from local_log.log.truncation import truncate_fully_and_start_at
from rlm.link.messages import CopiedThrough, Loss, LossFound
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.data_plane import World, call

NAMES = (b"i" * 16, 0, 3)
SOUND = CopiedThrough(*NAMES, -1, -1, -1, 0)


def lost(loss: Loss) -> LossFound:
    """The tier's validation that something is lost."""
    return LossFound(*NAMES, loss)


def from_10(world: World, **config: bool) -> None:
    """Make topic t, whose log here begins at offset 10, and is empty."""
    world.add_topic("t", **config)
    world.append("t", b"remote by now")
    truncate_fully_and_start_at(world.log("t"), 10, keep_log_start=True)


class AtOnce(ManualScheduler):
    """Nobody waits: what is to come later comes at the next iteration of the loop."""

    def call_later(self, delay_ms: float, fn: Callable[[], object]) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(fn)


def impatient(world: World) -> Holding:
    """Validations are waited for no longer than an iteration of the loop."""
    return Holding(world.clock, AtOnce(world.clock))


class Remote:
    """Takes every read."""

    def read(self, read: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        future: asyncio.Future[RemoteFetched] = asyncio.get_running_loop().create_future()
        future.set_result(RemoteFetched())
        return future


def fetched(world: World, offset: int) -> int:
    handler = FetchHandler(
        world.replicas,
        world.ports,
        limits=FetchLimits(),
        remote=Remote(),
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


def epoch_end(world: World, epoch: int = 0) -> int:
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    fields = {"topics": [{"topic": "t", "partitions": [asked]}]}
    handler = OffsetForLeaderEpochHandler(world.replicas, impatient(world))
    return int(call(handler, 4, fields).topics[0].partitions[0].error_code)


def listed(
    world: World, timestamp: int, remote: Any = None, *, version: int = 7
) -> tuple[int, int, int]:
    handler = ListOffsetsHandler(
        world.replicas, clock=world.clock, pool=world.pool, holding=impatient(world), remote=remote
    )
    partition = {"partition_index": 0, "timestamp": timestamp}
    fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": [partition]}]}
    found = call(handler, version, fields).topics[0].partitions[0]
    return int(found.error_code), found.offset, found.leader_epoch


def deleted(world: World, offset: int) -> tuple[int, int]:
    fields = {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}],
        "timeout_ms": 1000,
    }
    handler = DeleteRecordsHandler(world.replicas, world.pool, impatient(world))
    found = call(handler, 2, fields).topics[0].partitions[0]
    return int(found.error_code), found.low_watermark
