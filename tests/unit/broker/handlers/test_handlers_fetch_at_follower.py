"""Consumers that fetch from a follower, which follows a leader's real handlers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.fetch import FetchHandler
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from tests.support.worlds.data_plane import NODE, finish, start, values_of
from tests.support.worlds.fetch import ask, make, parts
from tests.support.worlds.followers import FOLLOWER, Pair, following

VERSION = 12
NINE, NOTHING = ErrorCode.REPLICA_NOT_AVAILABLE, (0, [])
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
FETCH_WAIT = {"replica.fetch.wait.max.ms": "500"}


@asynccontextmanager
async def followed(directory: Path) -> AsyncIterator[Pair]:
    """Three batches, a, b and c, at the follower, which knows them to be committed."""
    async with following(directory, settings=FETCH_WAIT) as pair:
        pair.add_topic("t")
        for value in (b"a", b"b", b"c"):
            pair.leader.append("t", value)
        await pair.run(600)
        assert pair.follower.log("t").high_watermark == 3
        yield pair


async def answered(handler: FetchHandler, version: int, answer: Any) -> tuple[int, list[Any]]:
    """Error and values."""
    found = await answer if isawaitable(answer) else answer
    part = parts(finish(handler, version, found))[0]
    return part.error_code, values_of(part.records)


async def asked(
    pair: Pair, offset: int, version: int = VERSION, **more: Any
) -> tuple[int, list[Any]]:
    """Error and values of a Fetch at the follower that does not wait."""
    handler = make(pair.follower)
    made = start(handler, version, question(pair, offset, version, **more))
    return await answered(handler, version, made)


def question(pair: Pair, offset: int, version: int = VERSION, **more: Any) -> dict[str, Any]:
    wait = {"max_wait_ms": more.pop("max_wait_ms", 0)}
    return ask(pair.follower, version, ("t", [{"fetch_offset": offset, **more}]), **wait)


def parked(pair: Pair, offset: int) -> tuple[FetchHandler, "asyncio.Future[Any]"]:
    handler = make(pair.follower)
    return handler, start(handler, VERSION, question(pair, offset, max_wait_ms=60_000))


def partition(pair: Pair) -> Any:
    return pair.follower.replicas.partitions[TopicPartition("t", 0)]


async def test_a_consumer_reads_what_is_committed_and_waits_above(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        assert await asked(pair, 0) == (0, [b"a", b"b", b"c"])
        assert await asked(pair, 2, current_leader_epoch=3) == (0, [b"c"])
        assert await asked(pair, 3) == NOTHING
        pair.side.tamper = lambda body: _low(body, 3)
        pair.leader.append("t", b"d")
        await pair.run(100)
        assert pair.follower.log("t").log_end_offset == 4
        assert await asked(pair, 2) == (0, [b"c"])
        assert await asked(pair, 3) == NOTHING
        assert await asked(pair, 4) == NOTHING
        assert await asked(pair, 5) == (NINE, [])


def _low(body: Any, high_watermark: int) -> Any:
    """The answer of a leader whose high watermark has not moved."""
    for part in parts(body):
        part.high_watermark = high_watermark
    return body


async def test_before_version_11_a_consumer_is_sent_to_the_leader(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        assert await asked(pair, 0, 10) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        assert (await asked(pair, 0, 11))[0] == 0
        assert (await asked(pair, 0, 18))[0] == 0


async def test_a_replica_is_sent_to_the_leader(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        handler, fields = make(pair.follower), question(pair, 0) | {"replica_id": NODE}
        found = await answered(handler, VERSION, start(handler, VERSION, fields))
        assert found == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


async def test_another_leader_epoch_is_refused(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        assert (await asked(pair, 0, current_leader_epoch=2))[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert (await asked(pair, 0, current_leader_epoch=4))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_position_of_another_lineage_is_told_where_it_diverges(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        pair.change("t", leader_epoch=5)
        pair.leader.append("t", b"d")
        await pair.run(1_500)
        assert await asked(pair, 2, last_fetched_epoch=3) == (0, [b"c", b"d"])
        assert await diverging(pair, 2, 3) == (-1, -1)
        assert await diverging(pair, 4, 3) == (3, 3)
        assert await diverging(pair, 2, 4) == (3, 3)
        assert await diverging(pair, 4, 5) == (-1, -1)
        # Its leader may have all of an epoch that is not here yet.
        assert await asked(pair, 2, last_fetched_epoch=6) == (NINE, [])
        assert await asked(pair, 5, last_fetched_epoch=5) == (NINE, [])


async def diverging(pair: Pair, offset: int, epoch: int) -> tuple[int, int]:
    handler = make(pair.follower)
    found = start(handler, VERSION, question(pair, offset, last_fetched_epoch=epoch))
    part = parts(finish(handler, VERSION, await found if isawaitable(found) else found))[0]
    assert part.error_code == 0
    return part.diverging_epoch.epoch, part.diverging_epoch.end_offset


async def test_bad_input_a_negative_size_is_refused(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        assert (await asked(pair, 0, partition_max_bytes=-1))[0] == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_below_the_log_start_only_a_fresh_word_of_the_leader_counts(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        led = pair.leader.replicas.partitions[TopicPartition("t", 0)]
        led.log.raise_log_start(2)
        led.log_start_raised()
        await pair.run(600)
        assert await asked(pair, 1) == (OUT_OF_RANGE, [])
        assert await asked(pair, 2) == (0, [b"c"])
        pair.side.tamper = lambda _body: None  # it answers no more
        await pair.run(2_000)
        assert await asked(pair, 1) == (NINE, [])
        assert await asked(pair, 2) == (0, [b"c"])


async def test_a_log_start_that_the_leader_does_not_know_is_none(tmp_path: Path) -> None:
    """A follower that took the local start for it would give up all that is in the store."""
    async with followed(tmp_path) as pair:
        log = pair.leader.replicas.partitions[TopicPartition("t", 0)].log
        log.log_start_offset, log.log_start_known = 2, False
        log.changed()
        await pair.run(600)
        assert pair.follower.log("t").log_start_offset == 0
        assert partition(pair).leader_word.log_start_offset == -1
        assert (await asked(pair, 0))[0] == 0
        log.log_start_known = True
        log.changed()
        await pair.run(600)
        assert pair.follower.log("t").log_start_offset == 2


async def test_a_fetch_that_waits_ends_when_the_high_watermark_moves(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        handler, waiting = parked(pair, 3)
        await pair.run(1_000)
        assert not waiting.done()
        pair.side.tamper = lambda body: _low(body, 3)
        pair.leader.append("t", b"d")
        await pair.run(300)
        assert not waiting.done(), "d is not committed"
        pair.side.tamper = lambda body: body
        pair.leader.append("t", b"e")  # the answer that brings it tells of d
        await pair.run(600)
        error, values = await answered(handler, VERSION, waiting)
        assert (error, values[:1]) == (0, [b"d"])
        assert not partition(pair).watches


@pytest.mark.parametrize("event", ["epoch", "leads", "nobody leads"])
async def test_a_fetch_that_waits_ends_when_the_role_changes(tmp_path: Path, event: str) -> None:
    async with followed(tmp_path) as pair:
        handler, waiting = parked(pair, 3)
        await pair.run(20)
        if event == "epoch":
            pair.side.tamper = lambda _body: None
            pair.change("t", leader_epoch=4)
        elif event == "leads":
            pair.change("t", leader=FOLLOWER, leader_epoch=4)
        else:
            pair.change("t", leader=-1, leader_epoch=4)
        await pair.run(20)
        expected = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if event == "leads":  # it answers as leader then: there is nothing yet
            assert not waiting.done()
            waiting.cancel()
        else:
            assert await answered(handler, VERSION, waiting) == (expected, [])


async def test_nothing_is_served_before_the_leader_of_this_epoch_was_heard(tmp_path: Path) -> None:
    """What is here may have been given up by an unclean election."""
    async with followed(tmp_path) as pair:
        pair.side.tamper = lambda _body: None
        pair.change("t", leader_epoch=4)
        await pair.run(100)
        assert await asked(pair, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        pair.side.tamper = lambda body: body
        await pair.run(40_000, step_ms=100)
        assert (await asked(pair, 0))[0] == 0


async def test_the_same_leadership_said_again_keeps_what_was_heard(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        pair.side.tamper = lambda _body: None
        pair.change("t", isr=(NODE,))
        await pair.run(20)
        assert (await asked(pair, 0))[0] == 0


async def test_a_leader_that_answers_errors_is_not_heard(tmp_path: Path) -> None:
    async with followed(tmp_path) as pair:
        led = pair.leader.replicas.partitions[TopicPartition("t", 0)]
        led.log.raise_log_start(2)
        led.log_start_raised()
        await pair.run(600)

        def refused(body: Any) -> Any:
            for part in parts(body):
                part.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            return body

        pair.side.tamper = refused
        pair.leader.append("t", b"d")
        await pair.run(50)
        assert partition(pair).leader_word.heard is None
        assert await asked(pair, 1) == (NINE, [])
        assert await asked(pair, 2) == (0, [b"c"])
