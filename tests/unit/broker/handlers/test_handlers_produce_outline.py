"""A wide Produce is validated by its outline.

What it holds, and why nothing of it can be appended.
"""

import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce import ProduceHandler
from broker.handlers.produce_outline import ELEMENTS_MAX, Outline, is_wide
from broker.network.registry import KEPT_FRAME_BYTES, CloseConnection
from kafka_protocol.errors import ErrorCode, MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from runtime.executors import ThreadPools
from tests.support.worlds.data_plane import World, batch, build, call, context
from tests.support.worlds.network import frame, serving
from tests.support.worlds.waiting import until

VERSIONS = [3, 5, 8, 9, 13]
PRODUCE = request(ApiKey.PRODUCE)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.add_topic("here", 3)
    return world


def topic_of(version: int, name: str, records: list[bytes | None]) -> dict[str, Any]:
    key = {"topic_id": name.encode().ljust(16, b"-")} if version >= 13 else {"name": name}
    partitions = [{"index": n, "records": one} for n, one in enumerate(records)]
    return key | {"partition_data": partitions}


def ask(version: int, topics: dict[str, list[bytes | None]], **more: Any) -> dict[str, Any]:
    data = [topic_of(version, name, records) for name, records in topics.items()]
    return {"acks": -1, "timeout_ms": 1_000, "topic_data": data} | more


def encoded(version: int, fields: dict[str, Any]) -> bytes:
    return PRODUCE.encode(build(PRODUCE.cls, fields), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_outline_is_what_the_decoder_finds(version: int) -> None:
    fields = ask(
        version,
        {"a": [None, b"12", b""], "topic-b": [], "c": [b"x" * 300] * 7},
        transactional_id="some" if version % 2 else None,
        acks=1,
    )
    body = encoded(version, fields)
    outline = Outline(version, memoryview(body))
    decoded, _ = PRODUCE.decode(body, version)
    assert outline.count() == 3 + 3 + 7
    assert outline.topics is not None
    key = "topic_id" if version >= 13 else "name"
    assert [(key, partitions) for key, _, _, partitions in outline.topics] == [
        (getattr(one, key), len(one.partition_data)) for one in decoded.topic_data
    ]
    assert outline.acks == decoded.acks == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_anywhere_has_no_topics(version: int) -> None:
    body = encoded(version, ask(version, {"abc": [b"x" * 9, None], "d": [b"y" * 9]}))
    for end in range(len(body)):
        outline = Outline(version, memoryview(body)[:end])
        assert outline.count() == end // 3, end
        assert outline.topics is None


@pytest.mark.parametrize(
    ("version", "what"),
    [
        (version, what)
        for version in VERSIONS
        for what in ("name", "partitions", "topics")
        if (version, what) != (13, "name")
    ],
)
def test_bad_input_null_where_it_may_not_be_is_left_to_the_decoder(version: int, what: str) -> None:
    null = b"\0" if version >= 9 else b"\xff" * (2 if what == "name" else 4)
    key = bytes(16) if version >= 13 else b"\x02a" if version >= 9 else b"\0\1a"
    if what == "name":
        key = null
    count = b"\x02" if version >= 9 else bytes(3) + b"\1"
    topics = null if what == "topics" else count + key + (null if what == "partitions" else count)
    empty = encoded(version, ask(version, {}))
    body = empty[: -1 - 1 if version >= 9 else -4] + topics + bytes(40)
    outline = Outline(version, memoryview(body))
    outline.count()
    assert outline.topics is None
    with pytest.raises(MalformedMessageError):
        PRODUCE.decode(body, version)


@pytest.mark.parametrize("version", [9, 13])
def test_tagged_fields_are_passed_over_wherever_they_stand(version: int) -> None:
    plain = encoded(version, ask(version, {"a": [b"xy"]}))
    assert plain.endswith(b"\3xy\0\0\0"), "of the partition, the topic and the request"
    tags = b"\1\7\2ab"
    outline = Outline(version, memoryview(plain[:-3] + tags * 3))
    assert outline.count() == 2
    assert outline.topics is not None
    assert len(outline.topics) == 1


def test_topics_without_partitions_count_too() -> None:
    body = encoded(3, ask(3, {}))[:-4] + (1 << 20).to_bytes(4, "big") + bytes(6) * (1 << 20)
    outline = Outline(3, memoryview(body))
    assert outline.count() == ELEMENTS_MAX
    assert outline.topics is None


@pytest.mark.parametrize("version", [3, 5, 8, 9, 13])
def test_unknown_topics_are_refused_as_narrow_requests_are(world: World, version: int) -> None:
    topics: dict[str, list[bytes | None]] = {"gone": [None] * 400, "a": [batch(b"x" * 80)] * 500}
    handler = ProduceHandler(world.replicas)
    wide = call(handler, version, ask(version, topics))
    narrow = call(handler, version, ask(version, {name: r[:2] for name, r in topics.items()}))
    assert [len(topic.partition_responses) for topic in wide.responses] == [400, 500]
    for ours, theirs in zip(wide.responses, narrow.responses, strict=True):
        assert getattr(ours, "topic_id", 0) == getattr(theirs, "topic_id", 0)
        assert [one.index for one in ours.partition_responses] == list(
            range(len(ours.partition_responses))
        )
        (wanted, _) = theirs.partition_responses
        for one in ours.partition_responses:
            assert one.error_message is None
            one.index, one.error_message = wanted.index, wanted.error_message
            assert one == wanted


@pytest.mark.parametrize("version", [7, 9])
def test_each_topic_is_refused_for_its_own_reason(world: World, version: int) -> None:
    topics: dict[str, list[bytes | None]] = {
        name: [bytes(60)] * 300 for name in ("nope", "__consumer_offsets", "__remote_log_metadata")
    }
    asked = ask(version, topics)
    assert is_wide(version, memoryview(encoded(version, asked)), 0)
    answer = call(ProduceHandler(world.replicas), version, asked)
    assert [topic.partition_responses[7].error_code for topic in answer.responses] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.POLICY_VIOLATION,
    ]


@pytest.mark.parametrize("version", [7, 9])
def test_a_topic_that_is_there_is_appended_to_beside_others(world: World, version: int) -> None:
    topics: dict[str, list[bytes | None]] = {
        "nope": [None] * 300,
        "here": [batch(b"x" * 90), batch(b"y" * 90), None],
        "big": [bytes(200)] * 300,
    }
    answer = call(ProduceHandler(world.replicas), version, ask(version, topics, acks=1))
    codes = [one.error_code for one in answer.responses[1].partition_responses]
    assert codes == [0, 0, ErrorCode.INVALID_RECORD]
    assert world.log("here", 0).log_end_offset == 1


@pytest.mark.parametrize(("acks", "at_first"), [(1, False), (0, True)])
async def test_a_wide_request_continues_without_its_client_after_one_append(
    world: World, acks: int, at_first: bool
) -> None:
    """With acks=0 the client hangs up rightly; else nothing is appended for one that has gone."""
    topics: dict[str, list[bytes | None]] = {"here": [batch(b"x" * 70_000)]}
    body = encoded(7, ask(7, topics | {"there": [None] * 300}, acks=acks))
    asked = context(ApiKey.PRODUCE, 7)
    in_order = ProduceHandler(world.replicas).raw(asked, memoryview(bytearray(body)), 0)
    assert in_order.continues is at_first
    with suppress(CloseConnection):
        await in_order.serve(in_order)
    assert in_order.continues
    assert world.log("here", 0).log_end_offset == 1


def test_nothing_is_known_of_a_refused_acks_but_its_code(world: World) -> None:
    topics: dict[str, list[bytes | None]] = {"here": [b"x" * 90] * 600}
    answer = call(ProduceHandler(world.replicas), 7, ask(7, topics, acks=7))
    codes = {one.error_code for one in answer.responses[0].partition_responses}
    assert codes == {ErrorCode.INVALID_REQUIRED_ACKS}
    with pytest.raises(CloseConnection, match="acks=0 refused"):
        call(ProduceHandler(world.replicas), 7, ask(7, {"nope": [b"x" * 90] * 600}, acks=0))


REFUSED = {
    "unknown partitions": ("here", 0, {}),
    "unknown topic": ("nope", 0, {}),
    "acks": ("here", 0, {"acks": 7}),
    "transactional": ("here", 0x10, {}),
    "acks=0": ("nope", 0, {"acks": 0}),
    "acks=0, transactional": ("here", 0x10, {"acks": 0}),
    "malformed": ("here", 0, {}),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_refused_wide_request_leaves_nothing_behind(world: World, why: str) -> None:
    """Nothing but the collector would free a cycle, with a frame of megabytes and its objects."""
    name, attribute, more = REFUSED[why]
    body = encoded(7, ask(7, {name: [bytes([attribute]) * 61] * 20_000}, **more))
    if why == "malformed":
        body = body[:-1]
    assert len(body) > KEPT_FRAME_BYTES
    ends = more.get("acks") == 0 or why == "malformed"
    pools = ThreadPools()
    async with serving(ProduceHandler(world.replicas, pools)) as harness:

        async def refused() -> None:
            client = await harness.connect()
            client.send(frame(body, api_key=ApiKey.PRODUCE, version=7))
            if ends:
                assert await client.is_closed()
            else:
                await client.answer()
            client.close()
            await until(lambda: not harness.server._connections)
            harness.clients.clear()

        await refused()
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            for _ in range(3):
                await refused()
            # A thread lets go of its last call when it is its turn.
            await until(lambda: len(gc.get_objects()) - before < 2_000)
            await until(lambda: not any(isinstance(one, Outline) for one in gc.get_objects()))
        finally:
            gc.enable()
    pools.shutdown()
