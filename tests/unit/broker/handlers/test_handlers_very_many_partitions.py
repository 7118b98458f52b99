"""Requests of very many partitions hold the loop for a slice of them at a time."""

import asyncio
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from broker.handlers.fetch import PARTITIONS_MAX
from broker.handlers.list_offsets import AT_ONCE, ListOffsetsHandler
from broker.network.dispatch import DECODED_AT_ONCE_BYTES, Dispatcher, Peer
from broker.network.registry import CloseConnection, Handler, HandlerTable
from broker.network.request_memory import RequestMemory, of_objects
from broker.network.wide_requests import WideRequests
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.worlds.data_plane import NOW_MS, World, build, call, finish, start
from tests.support.worlds.fetch import ask, make, parts
from tests.support.worlds.pools import HeldPool, turns

MANY = 4000


class TestFetch:
    def _ask(self, world: World, count: int, **more: Any) -> dict[str, Any]:
        partitions = [{"partition": index} for index in range(count)]
        return ask(world, 12, ("t", partitions), **more)

    async def test_a_long_request_is_decoded_by_a_thread_and_answered_as_a_short_one(
        self, tmp_path: Path
    ) -> None:
        pool = HeldPool(is_holding=False)
        world = World(tmp_path, pool=pool)
        world.add_topic("t", 3)
        world.append("t", b"one", index=1)
        pool.is_holding = True
        handler = make(world)
        answer = asyncio.ensure_future(start(handler, 12, self._ask(world, MANY, session_epoch=0)))
        await pool.until_held()
        assert not answer.done()
        pool.release()
        long = finish(handler, 12, await answer)
        short = finish(handler, 12, start(handler, 12, self._ask(world, 3, session_epoch=0)))
        assert long.session_id > 0
        assert [p.partition_index for p in parts(long)] == list(range(MANY))
        assert [bytes(p.records) for p in parts(long)[:3]] == [
            bytes(p.records) for p in parts(short)
        ]
        unknown = {p.error_code for p in parts(long)[3:]}
        assert unknown == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    def test_bad_input_too_many_partitions_are_refused(self, world: World) -> None:
        handler = make(world)
        fields = self._ask(world, PARTITIONS_MAX + 1, session_epoch=0)
        answer = call(handler, 12, fields)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not answer.responses
        assert len(handler.sessions) == 0
        with pytest.raises(CloseConnection):
            call(handler, 4, {k: v for k, v in fields.items() if k != "session_epoch"})


def _frame(api_key: ApiKey, version: int, fields: dict[str, Any]) -> bytearray:
    message = codec.request(api_key)
    body = message.encode(build(message.cls, fields), version)
    return bytearray(pack(">hhih", api_key, version, 1, -1) + b"\0" + body)


def _dispatch(world: World, handler: Handler, pool: HeldPool, frame: bytearray) -> Any:
    memory = RequestMemory(
        64 << 20, world.clock, asyncio.get_running_loop().call_soon, of_objects(world.metrics)
    )
    wide = WideRequests(memory, pool)
    dispatcher = Dispatcher(HandlerTable([handler]), world.metrics, pool, wide, world.clock)
    answer = dispatcher.dispatch(Peer("PLAINTEXT", ("::1", 9)), memoryview(frame), NOW_MS, 0, 0)
    frame[:] = bytes(len(frame))  # the network recycles it
    return answer


class TestListOffsets:
    def _handler(self, world: World) -> ListOffsetsHandler:
        return ListOffsetsHandler(
            world.replicas,
            clock=world.clock,
            pool=world.pool,
            holding=None,  # type: ignore[arg-type]
        )

    def _ask(self, count: int, timestamp: int) -> dict[str, Any]:
        partitions = [
            {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
            for index in range(count)
        ]
        return {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": partitions}],
        }

    @pytest.mark.parametrize("timestamp", [-1, -2, -4])
    async def test_what_is_known_takes_no_task_for_each_partition(
        self, world: World, timestamp: int
    ) -> None:
        world.add_topic("t", 2)
        world.append("t", b"one", index=1)
        made: list[object] = []
        loop = asyncio.get_running_loop()

        def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
            made.append(coroutine)
            return asyncio.Task(coroutine, loop=loop, **more)

        loop.set_task_factory(factory)
        answer = await start(self._handler(world), 8, self._ask(MANY, timestamp))
        loop.set_task_factory(None)
        assert made == []
        [topic] = answer.topics
        found = [(p.partition_index, p.error_code, p.offset) for p in topic.partitions]
        assert found[:2] == [(0, 0, 0), (1, 0, 1 if timestamp == -1 else 0)]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found[2:] == [(index, unknown, -1) for index in range(2, MANY)]

    async def test_the_loop_turns_while_very_many_are_answered(self, world: World) -> None:
        world.add_topic("t")
        answer = asyncio.ensure_future(start(self._handler(world), 8, self._ask(MANY, -1)))
        turns = 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= MANY // 500

    async def test_look_ups_of_many_topics_are_side_by_side_but_not_all(
        self, tmp_path: Path
    ) -> None:
        pool = HeldPool(is_holding=False)
        world = World(tmp_path, pool=pool)
        names = [f"t{number}" for number in range(AT_ONCE + 40)]
        for name in names:
            world.add_topic(name)
            world.append(name, b"one")
        pool.is_holding = True
        fields = self._ask(1, 5)
        fields["topics"] = [fields["topics"][0] | {"name": name} for name in names]
        answer = asyncio.ensure_future(start(self._handler(world), 8, fields))
        await pool.until_held(AT_ONCE)
        await turns()
        assert pool.held == AT_ONCE
        pool.release(1)
        await turns()
        assert pool.held == AT_ONCE
        pool.stop_holding()
        topics = (await answer).topics
        assert [topic.name for topic in topics] == names
        assert {topic.partitions[0].error_code for topic in topics} == {0}

    async def test_look_ups_that_end_with_their_client_leave_nothing_behind(
        self, tmp_path: Path
    ) -> None:
        pool = HeldPool(is_holding=False)
        world = World(tmp_path, pool=pool)
        world.add_topic("t", AT_ONCE + 40)
        pool.is_holding = True
        answer = asyncio.ensure_future(start(self._handler(world), 8, self._ask(AT_ONCE + 40, 5)))
        await pool.until_held(AT_ONCE)
        answer.cancel()
        await turns()
        assert answer.cancelled()
        assert pool.held == AT_ONCE

    async def test_a_long_request_is_decoded_and_its_answer_encoded_by_a_thread(
        self, world: World
    ) -> None:
        world.add_topic("t")
        pool = HeldPool()
        frame = _frame(ApiKey.LIST_OFFSETS, 8, self._ask(MANY, -1))
        assert len(frame) > DECODED_AT_ONCE_BYTES
        answer = _dispatch(world, self._handler(world), pool, frame)
        await pool.until_held()
        pool.release()
        await pool.until_held()
        pool.release()
        sent, *_ = await answer
        body = b"".join(bytes(part) for part in sent)[9:]
        decoded, _ = codec.response(ApiKey.LIST_OFFSETS).decode(body, 8)
        assert len(decoded.topics[0].partitions) == MANY

    async def test_bad_input_a_long_request_that_is_malformed_ends_the_connection(
        self, world: World
    ) -> None:
        pool = HeldPool(is_holding=False)
        frame = _frame(ApiKey.LIST_OFFSETS, 8, self._ask(MANY, -1))[:-10]
        with pytest.raises(CloseConnection, match="malformed LIST_OFFSETS"):
            await _dispatch(world, self._handler(world), pool, frame)
