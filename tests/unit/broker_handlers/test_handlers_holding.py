"""Answers that wait for the tier's judgement: clients would ask again at once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_plane_harness import NOW_MS, World, finish, start
from fetch_harness import ask, parts
from remote_log_harness import SOUND, from_10, lost

from broker.handlers import fetch, list_offsets, offset_for_leader_epoch
from broker.handlers.holding import HOLD_MS, Holding
from broker.handlers.registry import Handler
from kafka_protocol.errors import ErrorCode
from rlm.messages import Loss
from runtime.executors import InlinePool

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
    """A log that nobody has judged; offsets 10 to 12 are here."""
    world = World(tmp_path, has_tier=True)
    from_10(world, remote_storage_enable=True)
    world.append("t", b"10", b"11", b"12")
    world.log("t").high_watermark = 13
    yield world
    world.logs.close(clean=False)


def epoch_ends(world: World) -> Handler:
    return offset_for_leader_epoch.make(world.replicas, Holding(world.clock, world.scheduler))


def by_time(world: World) -> Handler:
    return list_offsets.make(
        world.replicas,
        clock=world.clock,
        pool=InlinePool(),
        holding=Holding(world.clock, world.scheduler),
    )


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


def test_a_question_for_an_epochs_end_waits_for_the_judgement(world: World) -> None:
    async def scene() -> None:
        question = await asked(epoch_ends(world), 4, EPOCH_END)
        assert not question.done()
        world.replicas.require("t", 0).take_report(SOUND)
        await turns()
        assert code(question) == NONE
        assert not world.replicas.require("t", 0).waiters

    asyncio.run(scene())


@pytest.mark.parametrize("loss", [None, Loss.LOG_END], ids=["open", "lost"])
def test_without_one_it_is_refused_and_what_is_behind_it_does_not_wait_again(
    world: World, loss: Loss | None
) -> None:
    if loss is not None:
        world.replicas.require("t", 0).take_report(lost(loss))

    async def scene() -> None:
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

    asyncio.run(scene())


def test_a_look_up_by_time_waits_for_the_judgement_and_no_longer_than_its_limit(
    world: World,
) -> None:
    async def scene() -> None:
        question = await asked(by_time(world), 7, BY_TIME)
        assert not question.done()
        world.scheduler.advance(5_000)
        await turns()
        assert code(question) == STORAGE
        question = await asked(by_time(world), 7, BY_TIME)
        world.replicas.require("t", 0).take_report(SOUND)
        await turns()
        assert code(question) == NONE

    asyncio.run(scene())


def test_a_fetch_above_an_unjudged_end_is_parked_and_woken_by_the_judgement(world: World) -> None:
    async def scene() -> None:
        handler = fetch.make(
            world.replicas,
            limits=fetch.FetchLimits(),
            clock=world.clock,
            scheduler=world.scheduler,
            dice=world.dice,
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

    asyncio.run(scene())
