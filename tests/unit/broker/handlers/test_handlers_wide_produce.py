"""A Produce of very many partitions is appended in iterations of the loop; a usual one at once."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import produce, produce_outline
from broker.handlers.produce import ProduceHandler
from broker.handlers.produce_outline import SLICE_PARTITIONS, is_wide
from broker.network.registry import KEPT_FRAME_BYTES, CloseConnection
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.worlds.data_plane import World, batch, build, call, finish, start
from tests.support.worlds.pools import HeldPool
from tests.support.worlds.waiting import PATIENCE_S

TOPICS = {"a": 700, "b": 3, "c": 700}
VERSIONS = [3, 8, 9, 13]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for name, count in TOPICS.items():
        world.add_topic(name, count)
    return world


def ask(
    world: World,
    version: int,
    topics: dict[str, int],
    *,
    value: bytes = b"x" * 60,
    times: int = 1,
    **more: Any,
) -> dict[str, Any]:
    data = [
        ({"topic_id": world.topics[name].id} if version >= 13 else {"name": name})
        | {"partition_data": [{"index": i, "records": batch(value)} for i in range(count)]}
        for name, count in topics.items()
    ]
    return {"acks": 1, "timeout_ms": 1_000, "topic_data": data * times} | more


def ends(world: World) -> dict[str, list[int]]:
    return {
        name: [world.log(name, index).log_end_offset for index in range(count)]
        for name, count in TOPICS.items()
    }


def appended(world: World) -> int:
    return sum(sum(each) for each in ends(world).values())


async def test_what_is_left_for_an_id_never_goes_into_another_topic_of_its_name(
    world: World,
) -> None:
    old = world.topics["a"].id
    handler = ProduceHandler(world.replicas)
    answer = asyncio.ensure_future(start(handler, 13, ask(world, 13, {"a": 700})))
    log = world.log("a", 0)
    for _ in range(10):
        if log.log_end_offset == 0:
            await asyncio.sleep(0)
    del world.topics["a"]
    world.apply()
    assert world.add_topic("a", 700) != old
    parts = finish(handler, 13, await answer).responses[0].partition_responses
    codes = [part.error_code for part in parts]
    assert codes == [0] * SLICE_PARTITIONS + [ErrorCode.UNKNOWN_TOPIC_ID] * (700 - SLICE_PARTITIONS)
    assert appended(world) == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_turn_appends_more_than_a_slice(world: World, version: int) -> None:
    handler = ProduceHandler(world.replicas)
    answer = asyncio.ensure_future(start(handler, version, ask(world, version, TOPICS)))
    seen = [appended(world)]
    while not answer.done():
        await asyncio.sleep(0)
        seen.append(appended(world))
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) <= SLICE_PARTITIONS
    assert ends(world) == {name: [1] * count for name, count in TOPICS.items()}
    topics = finish(handler, version, await answer).responses
    assert [[p.index for p in topic.partition_responses] for topic in topics] == [
        list(range(count)) for count in TOPICS.values()
    ]
    assert {p.error_code for topic in topics for p in topic.partition_responses} == {0}
    if version < 13:
        assert [topic.name for topic in topics] == list(TOPICS)


async def test_what_one_turn_appends_is_bounded_in_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (produce, produce_outline):
        monkeypatch.setattr(module, "SLICE_BYTES", 250_000)
    value = b"x" * 100_000
    fields = ask(world, 9, {"b": 3, "a": 11}, value=value)
    handler = ProduceHandler(world.replicas)
    answer = asyncio.ensure_future(start(handler, 9, fields))
    seen = [0]
    while not answer.done():
        await asyncio.sleep(0)
        seen.append(appended(world))
    steps = {after - before for before, after in pairwise(seen)}
    assert steps == {2, 0}
    assert appended(world) == 14


async def test_topics_without_partitions_are_answered_in_turns(world: World) -> None:
    handler = ProduceHandler(world.replicas)
    answer = asyncio.ensure_future(start(handler, 9, ask(world, 9, {"a": 0}, times=12_000)))
    turns = 0
    while not answer.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 12_000 // SLICE_PARTITIONS
    topics = finish(handler, 9, await answer).responses
    assert [(one.name, one.partition_responses) for one in topics] == [("a", [])] * 12_000


@pytest.mark.parametrize("version", VERSIONS)
def test_a_usual_one_is_appended_when_the_handler_returns(world: World, version: int) -> None:
    fields = ask(world, version, {"a": SLICE_PARTITIONS}, value=b"x" * 200)
    answer = start(ProduceHandler(world.replicas), version, fields)
    assert isinstance(answer, list)
    assert appended(world) == SLICE_PARTITIONS


def test_errors_are_of_their_partition_and_a_topic_is_answered_once(world: World) -> None:
    fields = ask(world, 9, TOPICS)
    fields["topic_data"][2]["partition_data"] += [{"index": 9_999, "records": batch(b"x")}]
    fields["topic_data"][0]["partition_data"][600]["records"] = None
    answer = call(ProduceHandler(world.replicas), 9, fields)
    codes = [[p.error_code for p in topic.partition_responses] for topic in answer.responses]
    assert [len(each) for each in codes] == [700, 3, 701]
    assert codes[0][600] == ErrorCode.INVALID_RECORD
    assert codes[2][700] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert appended(world) == 1_402


def test_bad_input_unknown_acks_and_transactions_refuse_all(world: World) -> None:
    handler = ProduceHandler(world.replicas)
    answer = call(handler, 9, ask(world, 9, TOPICS, acks=5))
    codes = {p.error_code for topic in answer.responses for p in topic.partition_responses}
    assert codes == {ErrorCode.INVALID_REQUIRED_ACKS}
    fields = ask(world, 9, TOPICS, acks=0)
    forged = batch(b"b", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    fields["topic_data"][2]["partition_data"][-1]["records"] = forged
    with pytest.raises(CloseConnection, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        call(handler, 9, fields)
    assert appended(world) == 0


@pytest.mark.parametrize("acks", [0, 1])
async def test_all_is_appended_though_the_client_hangs_up(world: World, acks: int) -> None:
    handler = ProduceHandler(world.replicas)
    answer = asyncio.ensure_future(start(handler, 9, ask(world, 9, TOPICS, acks=acks)))
    async with asyncio.timeout(PATIENCE_S):
        while acks and not appended(world):  # noqa: ASYNC110 - the first of many slices
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.cancel()
    for _ in range(50):
        await asyncio.sleep(0)
    assert appended(world) == sum(TOPICS.values())


async def test_what_waits_for_the_disk_is_answered_when_it_is_there(tmp_path: Path) -> None:
    pool = HeldPool(is_holding=False)
    world = World(tmp_path, pool=pool)
    world.add_topic("a", 600, flush_messages=1)
    pool.is_holding = True
    fields = ask(world, 9, {"a": 600}, acks=-1, timeout_ms=60_000)
    handler = ProduceHandler(world.replicas)
    answer = asyncio.ensure_future(start(handler, 9, fields))
    await pool.until_held(600)
    assert not answer.done()
    pool.release()
    parts = finish(handler, 9, await answer).responses[0].partition_responses
    assert [p.error_code for p in parts] == [0] * 600


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(
    ("topics", "length", "is_it"),
    [
        ([SLICE_PARTITIONS], 200, False),
        ([SLICE_PARTITIONS + 1], 200, True),
        ([1] * (SLICE_PARTITIONS + 1), 200, True),
        ([0, SLICE_PARTITIONS, 0, 1], 200, True),
        ([0] * 11_000, 0, True),
        ([0] * (SLICE_PARTITIONS - 1) + [1], 40_000, False),
        ([SLICE_PARTITIONS + 1], 10, False),  # too short to be looked through
        ([1], 9_000_000, False),
        ([3], 1_000_000, False),
        ([5], 1_000_000, True),
        ([1, 1], 3_000_000, True),
    ],
)
def test_the_outline_of_a_request_says_whether_it_is_wide(
    version: int, topics: list[int], length: int, is_it: bool
) -> None:
    message = codec.request(ApiKey.PRODUCE)
    fields = {
        "transactional_id": "some",
        "acks": 1,
        "timeout_ms": 1,
        "topic_data": [
            ({"topic_id": bytes(16)} if version >= 13 else {"name": "topic"})
            | {"partition_data": [{"index": i, "records": bytes(length)} for i in range(count)]}
            for count in topics
        ],
    }
    frame = b"head" + message.encode(build(message.cls, fields), version)
    assert is_wide(version, memoryview(frame), 4) is is_it
    if is_it and len(frame) < KEPT_FRAME_BYTES:
        for end in range(40_000, len(frame), 5_003):
            is_wide(version, memoryview(frame)[:end], 4)  # cut short: whatever, but no error
