"""Fetch: budgets, waiting, sessions, fencing."""

import asyncio
import inspect
from typing import Any

import pytest

from broker.network.registry import Handler, OrderedAnswer
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.codec import request
from tests.support.worlds.data_plane import World, batch, call, context, finish, start, values_of
from tests.support.worlds.fetch import BIG, ask, make, parts

VERSIONS = range(4, 19)


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_are_read_from_several_topics(world: World, version: int) -> None:
    for topic in ("a", "b"):
        world.add_topic(topic, 2)
        world.append(topic, b"1", b"2")
        world.append(topic, topic.encode(), index=1)
    fields = ask(world, version, ("a", [{}, {"partition": 1}]), ("b", [{"partition": 1}, {}]))
    answer = call(make(world), version, fields)
    assert [values_of(p.records) for p in parts(answer)] == [
        [b"1", b"2"],
        [b"a"],
        [b"b"],
        [b"1", b"2"],
    ]
    first = parts(answer)[0]
    assert (first.error_code, first.high_watermark, first.last_stable_offset) == (0, 2, 2)
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert first.aborted_transactions is None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_wrong_is_told_per_partition(world: World, version: int) -> None:
    world.add_topic("t", 2)
    world.append("t", b"1")
    world.log("t", 1).raise_log_start(0)
    fields = ask(
        world,
        version,
        ("t", [{}, {"fetch_offset": 2}, {"partition": 9}, {"partition_max_bytes": -1}]),
        ("no", [{}]),
    )
    found = parts(call(make(world), version, fields))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [p.error_code for p in found] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        unknown,
    ]
    assert values_of(found[0].records) == [b"1"]
    assert [p.high_watermark for p in found] == [1, -1, -1, -1, -1]
    assert [len(p.records) for p in found[1:]] == [0] * 4


def test_bad_input_below_the_log_start(world: World) -> None:
    world.add_topic("t")
    world.append("t", b"0")
    world.append("t", b"1")
    world.log("t").raise_log_start(1)
    found = parts(call(make(world), 11, ask(world, 11, ("t", [{}, {"fetch_offset": 1}]))))
    assert found[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(found[1].records) == [b"1"]


@pytest.mark.parametrize(
    ("current", "code"),
    [(2, ErrorCode.FENCED_LEADER_EPOCH), (3, 0), (-1, 0), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_bad_input_leader_epochs_are_compared(world: World, current: int, code: int) -> None:
    world.add_topic("t", leader_epoch=3)
    fields = ask(world, 12, ("t", [{"current_leader_epoch": current}]))
    assert parts(call(make(world), 12, fields))[0].error_code == code


@pytest.mark.parametrize("version", [11, 14, 15])
def test_bad_input_a_broker_without_a_replica_is_refused(
    world: World, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_topic("t", leader_epoch=3)
    world.append("t", b"x")
    who: dict[str, Any] = {"replica_id": 7}
    if version >= 15:
        who = {"replica_state": {"replica_id": 7, "replica_epoch": 1}}
    with_epoch = ask(world, version, ("t", [{"current_leader_epoch": 3}]), **who)
    without = ask(world, version, ("t", [{}]), **who)
    handler = make(world)
    assert parts(call(handler, version, with_epoch))[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert parts(call(handler, version, without))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (said,) = caplog.messages
    assert "broker 7 fetches t-0, and holds no replica" in said


class TestBudget:
    def _world(self, world: World) -> World:
        world.add_topic("t", 3)
        for index in range(3):
            for _ in range(4):
                world.append("t", b"x" * 932, index=index)
        return world

    def _sizes(self, world: World, handler: Handler, limit: int, **each: int) -> list[int]:
        fields = ask(world, 11, ("t", [{"partition": i} | each for i in range(3)]), max_bytes=limit)
        return [len(p.records) for p in parts(call(handler, 11, fields))]

    def test_one_batch_comes_whatever_the_limits(self, world: World) -> None:
        one = len(batch(b"x" * 932))
        self._world(world)
        for limit, each in ((0, BIG), (1, 1), (BIG, 0)):
            sizes = self._sizes(world, make(world), limit, partition_max_bytes=each)
            assert sizes == [one, 0, 0]

    def test_the_budget_is_shared_in_order(self, world: World) -> None:
        one = len(batch(b"x" * 932))
        self._world(world)
        assert self._sizes(world, make(world), 6 * one) == [4 * one, 2 * one, 0]
        sizes = self._sizes(world, make(world), BIG, partition_max_bytes=2 * one)
        assert sizes == [2 * one] * 3

    def test_bad_input_the_brokers_limit_bounds_the_answer(self, world: World) -> None:
        one = len(batch(b"x" * 932))
        self._world(world)
        assert sum(self._sizes(world, make(world, max_bytes=5 * one), BIG)) == 5 * one


class TestWaiting:
    async def test_a_fetch_waits_for_an_append(self, world: World) -> None:
        world.add_topic("t")

        handler = make(world)
        waiting = start(handler, 12, ask(world, 12, ("t", [{}]), max_wait_ms=500))
        assert not waiting.done()
        world.append("t", b"late")
        answer = finish(handler, 12, await waiting)
        assert values_of(parts(answer)[0].records) == [b"late"]
        assert not world.replicas.require("t", 0).watches

    async def test_it_waits_for_min_bytes_or_the_end_of_its_wait(self, world: World) -> None:
        world.add_topic("t", 2)
        one = len(batch(b"x"))

        handler = make(world)
        fields = ask(
            world,
            12,
            ("t", [{}, {"partition": 1}]),
            max_wait_ms=500,
            min_bytes=2 * one,
        )
        enough, late = start(handler, 12, fields), start(handler, 12, fields)
        world.append("t", b"x")
        await asyncio.sleep(0)
        assert not enough.done()
        world.append("t", b"x", index=1)
        answer = finish(handler, 12, await enough)
        assert [len(p.records) for p in parts(answer)] == [one, one]
        assert finish(handler, 12, await late)
        third = start(handler, 12, fields | {"min_bytes": 10 * one})
        world.scheduler.advance(499)
        assert not third.done()
        world.scheduler.advance(1)
        answer = finish(handler, 12, await third)
        assert [len(p.records) for p in parts(answer)] == [one, one]

    async def test_an_answer_that_is_full_waits_for_no_more_bytes(self, world: World) -> None:
        world.add_topic("t")
        world.append("t", b"x")
        one = len(batch(b"x"))
        for limit, asked in ((BIG, one), (one, BIG)):  # the broker's, the client's
            wanted = {"max_wait_ms": BIG, "min_bytes": 10 * one, "max_bytes": asked}
            handler = make(world, max_bytes=limit)
            answer = start(handler, 12, ask(world, 12, ("t", [{}]), **wanted))
            assert not inspect.isawaitable(answer)
            answer = finish(handler, 12, answer)
            assert values_of(parts(answer)[0].records) == [b"x"]

    @pytest.mark.parametrize("event", ["epoch", "leader", "deleted"])
    async def test_a_change_of_the_partition_wakes_it(self, world: World, event: str) -> None:
        world.add_topic("t")

        handler = make(world)
        fields = ask(world, 12, ("t", [{"current_leader_epoch": 3}]), max_wait_ms=BIG)
        waiting = start(handler, 12, fields)
        if event == "epoch":
            world.change("t", leader_epoch=4)
        elif event == "leader":
            world.change("t", replicas=(1, 2), leader=2)
        else:
            world.topics.clear()
            world.apply()
        answer = finish(handler, 12, await waiting)
        assert (
            parts(answer)[0].error_code
            == {
                "epoch": ErrorCode.FENCED_LEADER_EPOCH,
                "leader": ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "deleted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }[event]
        )

    async def test_a_cancelled_fetch_leaves_nothing_behind(self, world: World) -> None:
        world.add_topic("t")

        waiting = start(make(world), 12, ask(world, 12, ("t", [{}]), max_wait_ms=500))
        assert world.replicas.require("t", 0).watches
        waiting.cancel()
        await asyncio.sleep(0)
        assert not world.replicas.require("t", 0).watches


class TestSessions:
    def test_an_incremental_fetch_names_only_news(self, world: World) -> None:
        world.add_topic("t", 2)
        handler = make(world)
        fields = ask(world, 13, ("t", [{}, {"partition": 1}]), session_id=0, session_epoch=0)
        first = call(handler, 13, fields)
        assert first.session_id > 0
        assert len(parts(first)) == 2
        more = {"session_id": first.session_id, "topics": []}
        second = call(handler, 13, fields | more | {"session_epoch": 1})
        assert parts(second) == []
        world.append("t", b"new", index=1)
        third = call(handler, 13, fields | more | {"session_epoch": 2})
        assert [(p.partition_index, values_of(p.records)) for p in parts(third)] == [(1, [b"new"])]

    @pytest.mark.parametrize("session_id", [1, 4711, 2**31 - 1, -5])
    def test_bad_input_an_invented_session(self, world: World, session_id: int) -> None:
        fields = ask(world, 12, session_id=session_id, session_epoch=5)
        answer = call(make(world), 12, fields)
        assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)

    def test_a_topic_made_again_under_its_name_is_another_topic(self, world: World) -> None:
        old = world.add_topic("t")
        handler = make(world)
        fields = ask(world, 13, ("t", [{}]), session_id=0, session_epoch=0)
        session = call(handler, 13, fields).session_id
        del world.topics["t"]
        world.apply()
        new = world.add_topic("t")
        world.append("t", b"of the new topic")
        more = {"session_id": session, "session_epoch": 1, "topics": []}
        answer = call(handler, 13, fields | more)
        assert old != new
        assert parts(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert len(parts(answer)[0].records) == 0


async def test_bad_input_very_many_partitions_do_not_hold_the_loop(world: World) -> None:
    world.add_topic("t")
    world.append("t", b"x")
    handler = make(world)
    wanted = [{"partition": i} for i in range(100_000)]
    message = request(1)
    asked = message.cls(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=BIG,
        topics=[
            message.cls.Topics(
                topic="t",
                partitions=[
                    message.cls.Topics.Partitions(
                        partition=p["partition"], fetch_offset=0, partition_max_bytes=BIG
                    )
                    for p in wanted
                ],
            )
        ],
    )
    frame = bytearray(message.encode(asked, 11))

    answer = handler.raw(context(1, 11), memoryview(frame), 0)
    assert isinstance(answer, OrderedAnswer)
    turns = 0
    task = asyncio.ensure_future(answer.serve(answer))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 100
    found = parts(finish(handler, 11, task.result()))
    assert len(found) == 100_000
    assert values_of(found[0].records) == [b"x"]
    assert found[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_zstd_is_not_sent_to_clients_older_than_it(world: World) -> None:
    world.add_topic("t")
    world.replicas.require("t", 0).append(batch(b"x" * 200, codec=4), now_ms=world.clock.wall_ms())
    handler = make(world)
    old = parts(call(handler, 9, ask(world, 9, ("t", [{}]))))[0]
    assert (old.error_code, len(old.records)) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0)
    new = parts(call(handler, 10, ask(world, 10, ("t", [{}]))))[0]
    assert values_of(new.records) == [b"x" * 200]


def test_zero_uuid_names_no_topic(world: World) -> None:
    fields = ask(world, 13, ("t", [{}]))
    fields["topics"][0]["topic_id"] = ZERO_UUID
    assert parts(call(make(world), 13, fields))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("replicas", [(1, 2), (2,)])
@pytest.mark.parametrize("version", [10, 15, 16, 18])
def test_a_consumer_of_another_broker_is_told_the_leader(
    world: World, version: int, replicas: tuple[int, ...]
) -> None:
    world.add_topic("t")
    world.append("t", b"1")
    world.change("t", replicas=replicas, isr=replicas, leader=2, leader_epoch=4)
    answer = call(make(world), version, ask(world, version, ("t", [{}])))
    (part,) = parts(answer)
    assert (part.error_code, len(part.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    leader = (part.current_leader.leader_id, part.current_leader.leader_epoch)
    assert leader == ((2, 4) if version >= 16 else (-1, -1))
    assert [one.node_id for one in answer.node_endpoints] == ([2] if version >= 16 else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_who_asks_with_an_old_epoch_is_told_the_leader(world: World, version: int) -> None:
    world.add_topic("t")
    world.append("t", b"1")
    fields = ask(world, version, ("t", [{"current_leader_epoch": 2 if version >= 9 else -1}]))
    answer = call(make(world), version, fields)
    (part,) = parts(answer)
    if version < 9:
        assert part.error_code == 0
        return
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    endpoints = [(e.node_id, e.host, e.port, e.rack) for e in answer.node_endpoints]
    leader = (part.current_leader.leader_id, part.current_leader.leader_epoch)
    if version < 16:
        assert (leader, endpoints) == ((-1, -1), [])
    else:
        assert leader == (1, 3)
        host = f"{context(1, version).listener_name.lower()}.host"
        assert endpoints == [(1, host, 9092, "r1")]
