"""Answers that wait for the tier's validation: clients would ask again at once."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.delete_records import DeleteRecordsHandler
from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.handlers.holding import HOLD_MS, PEERS_MAX, VALIDATION_WAIT_MAX_MS, Holding
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.network.registry import Handler
from kafka_protocol.errors import ErrorCode
from rlm.link.messages import Loss
from runtime.executors import InlinePool
from tests.support.worlds.data_plane import NOW_MS, World, finish, start
from tests.support.worlds.fetch import ask, parts
from tests.support.worlds.remote_log import SOUND, from_10, lost

NONE, STORAGE = int(ErrorCode.NONE), int(ErrorCode.KAFKA_STORAGE_ERROR)
EPOCH_END = {
    "topics": [
        {
            "topic": "t",
            "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
        }
    ]
}
BY_TIME = {
    "replica_id": -1,
    "topics": [
        {"name": "t", "partitions": [{"partition_index": 0, "timestamp": NOW_MS + 1_000_000}]}
    ],
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A log that nobody has validated; offsets 10 to 12 are here."""
    world = World(tmp_path, has_tier=True)
    from_10(world, remote_storage_enable=True)
    world.append("t", b"10", b"11", b"12")
    world.log("t").update_high_watermark(13)
    yield world
    world.logs.close(clean=False)


def epoch_ends(world: World) -> Handler:
    return OffsetForLeaderEpochHandler(world.replicas, Holding(world.clock, world.scheduler))


def by_time(world: World) -> Handler:
    return ListOffsetsHandler(
        world.replicas,
        clock=world.clock,
        pool=InlinePool(),
        holding=Holding(world.clock, world.scheduler),
    )


def deletion(world: World) -> Handler:
    holding = Holding(world.clock, world.scheduler)
    return DeleteRecordsHandler(world.replicas, InlinePool(), holding)


def deletes(offset: int, timeout_ms: int = 5_000) -> Any:
    partitions = [{"partition_index": 0, "offset": offset}]
    return {"topics": [{"name": "t", "partitions": partitions}], "timeout_ms": timeout_ms}


async def asked(handler: Handler, version: int, fields: Any) -> "asyncio.Task[Any]":
    """A question that is answered, or waits for somebody else."""

    async def wait() -> Any:
        answer = start(handler, version, fields)
        return finish(handler, version, await answer if asyncio.iscoroutine(answer) else answer)

    task = asyncio.ensure_future(wait())
    await turns()
    return task


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def code(task: "asyncio.Task[Any]") -> int:
    return int(task.result().topics[0].partitions[0].error_code)


async def test_a_question_for_an_epochs_end_waits_for_the_validation(world: World) -> None:
    question = await asked(epoch_ends(world), 4, EPOCH_END)
    assert not question.done()
    world.replicas.require("t", 0).take_report(SOUND)
    await turns()
    assert code(question) == NONE
    assert not world.replicas.require("t", 0).waiters


@pytest.mark.parametrize("loss", [None, Loss.LOG_END], ids=["open", "lost"])
async def test_without_validation_it_is_refused_and_later_requests_do_not_wait(
    world: World, loss: Loss | None
) -> None:
    if loss is not None:
        world.replicas.require("t", 0).take_report(lost(loss))

    handler = epoch_ends(world)
    for _ in range(2):
        question = await asked(handler, 4, EPOCH_END)
        world.scheduler.advance(HOLD_MS - 1)
        await turns()
        assert not question.done()
        world.scheduler.advance(1)
        await turns()
        assert code(question) == STORAGE
        assert code(await asked(handler, 4, EPOCH_END)) == STORAGE
        world.scheduler.advance(HOLD_MS)


async def test_the_memory_of_waits_is_bounded_and_keeps_the_newest(world: World) -> None:
    holding = Holding(world.clock, world.scheduler)
    peers = [("::1", port) for port in range(2 * PEERS_MAX)]

    async def waited(some: Sequence[tuple[str, int]]) -> None:
        for peer in some:
            await holding.once(peer, [])  # nothing to wait for

    def remembered() -> list[tuple[str, int]]:
        return [peer for peer in peers if not holding.is_due(peer)]

    await waited(peers)
    assert remembered() == peers[PEERS_MAX:]
    world.clock.advance(HOLD_MS - 1)
    oldest, new = peers[PEERS_MAX], peers[0]
    await waited([oldest, new])
    assert remembered() == [new, oldest, *peers[PEERS_MAX + 2 :]]
    world.clock.advance(1)
    assert remembered() == [new, oldest], "they have waited again, and the others may"
    await waited(peers[1:2])
    assert holding.remembered == 3, "what is too old is forgotten"


async def test_a_lookup_by_time_waits_for_the_validation_up_to_its_limit(
    world: World,
) -> None:
    question = await asked(by_time(world), 7, BY_TIME)
    assert not question.done()
    world.scheduler.advance(5_000)
    await turns()
    assert code(question) == STORAGE
    question = await asked(by_time(world), 7, BY_TIME)
    world.replicas.require("t", 0).take_report(SOUND)
    await turns()
    assert code(question) == NONE


async def test_a_deletion_above_the_end_waits_for_the_validation(
    world: World,
) -> None:
    partition = world.replicas.require("t", 0)

    above = await asked(deletion(world), 2, deletes(14))
    assert code(await asked(deletion(world), 2, deletes(12))) == NONE, "it is below the end"
    assert not above.done()
    world.append("t", b"13", b"14")
    partition.take_report(SOUND)
    await turns()
    assert code(above) == NONE, "it is there by now"
    assert above.result().topics[0].partitions[0].low_watermark == 14
    assert code(await asked(deletion(world), 2, deletes(16))) == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_deletion_waits_no_longer_than_its_client_does(world: World) -> None:
    assert code(await asked(deletion(world), 2, deletes(14, timeout_ms=0))) == STORAGE
    for timeout_ms, limit_ms in ((300, 300), (60_000, VALIDATION_WAIT_MAX_MS)):
        question = await asked(deletion(world), 2, deletes(14, timeout_ms=timeout_ms))
        world.scheduler.advance(limit_ms - 1)
        await turns()
        assert not question.done()
        world.scheduler.advance(1)
        await turns()
        assert code(question) == STORAGE
    assert not world.replicas.require("t", 0).waiters


@pytest.mark.parametrize("handler", ["by time", "deletion"])
async def test_a_loss_that_is_found_ends_the_wait(world: World, handler: str) -> None:
    question = (
        await asked(by_time(world), 7, BY_TIME)
        if handler == "by time"
        else await asked(deletion(world), 2, deletes(14))
    )
    assert not question.done()
    world.replicas.require("t", 0).take_report(lost(Loss.LOG_END))
    await turns()
    assert code(question) == STORAGE


async def test_a_fetch_above_an_unvalidated_end_waits_for_the_validation(
    world: World,
) -> None:
    handler = FetchHandler(
        world.replicas,
        world.ports,
        limits=FetchLimits(),
    )
    above = ask(world, 12, ("t", [{"fetch_offset": 20}]), max_wait_ms=300)
    answers = []
    for _ in range(2):
        answer = start(handler, 12, above)
        await turns()
        assert not answer.done()
        answers.append(answer)
        world.scheduler.advance(200)
    assert parts(finish(handler, 12, answers[0].result()))[0].error_code == STORAGE
    assert not answers[1].done()
    world.replicas.require("t", 0).take_report(SOUND)
    code = parts(finish(handler, 12, await answers[1]))[0].error_code
    assert code == ErrorCode.OFFSET_OUT_OF_RANGE
