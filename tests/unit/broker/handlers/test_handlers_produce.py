"""Produce: what is appended, and which answer each refusal gets."""

import asyncio
from typing import Any

import pytest

from broker.handlers.produce import ProduceHandler
from broker.network.registry import CloseConnection
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from rlmm.topic_based.confluent_port import CLIENT_ID
from tests.support.worlds.data_plane import (
    World,
    batch,
    call,
    finish,
    of_tier,
    start,
    values_of,
)
from tests.support.worlds.fetch import addresses
from tests.support.worlds.local_log import read_bytes

VERSIONS = range(3, 14)


def ask(
    world: World, version: int, topic: str, *records: Any, acks: int = -1, **more: Any
) -> dict[str, Any]:
    """A request with one partition a batch."""
    ident = (
        {"topic_id": world.topics[topic].id if topic in world.topics else b"?" * 16}
        if version >= 13
        else {"name": topic}
    )
    return {
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [
            ident
            | {"partition_data": [{"index": i, "records": data} for i, data in enumerate(records)]}
        ],
    } | more


def one(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


def stored(world: World, topic: str, index: int = 0) -> list[bytes | None]:
    return (
        values_of(read_bytes(world.log(topic, index), 0, 1 << 20))
        if world.log(topic, index).log_end_offset
        else []
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-1, 1])
def test_batches_of_several_partitions_are_appended(world: World, version: int, acks: int) -> None:
    world.add_topic("t", 2)
    handler = ProduceHandler(world.replicas)
    call(handler, version, ask(world, version, "t", batch(b"0"), batch(b"x", b"y"), acks=acks))
    answer = call(
        handler, version, ask(world, version, "t", batch(b"1", b"2"), batch(b"z"), acks=acks)
    )
    parts = answer.responses[0].partition_responses
    assert [(p.index, p.error_code, p.base_offset, p.log_append_time_ms) for p in parts] == [
        (0, 0, 1, -1),
        (1, 0, 2, -1),
    ]
    assert parts[0].log_start_offset == (0 if version >= 5 else -1)
    assert stored(world, "t") == [b"0", b"1", b"2"]
    assert stored(world, "t", 1) == [b"x", b"y", b"z"]
    assert world.replicas.require("t", 0).high_watermark == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_stays_in_its_partition(world: World, version: int) -> None:
    world.add_topic("t", 3)
    damaged = batch(b"bad")
    damaged[-1] ^= 1
    fields = ask(world, version, "t", batch(b"good"), damaged, None, batch(b"nowhere"))
    answer = call(ProduceHandler(world.replicas), version, fields)
    parts = answer.responses[0].partition_responses
    assert [p.error_code for p in parts] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [p.base_offset for p in parts] == [0, -1, -1, -1]
    assert stored(world, "t", 1) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_is_named_so(world: World, version: int) -> None:
    answer = one(
        call(ProduceHandler(world.replicas), version, ask(world, version, "no", batch(b"x")))
    )
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [2, -2, 5, 32767])
def test_bad_input_unknown_acks_refuse_every_partition(
    world: World, version: int, acks: int
) -> None:
    world.add_topic("t", 2)
    fields = ask(world, version, "t", batch(b"a"), batch(b"b"), acks=acks)
    answer = call(ProduceHandler(world.replicas), version, fields)
    codes = [p.error_code for p in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_REQUIRED_ACKS] * 2
    assert stored(world, "t") == []


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_bad_input_transactional_batches_refuse_the_whole_request(
    world: World, transactional_id: str | None
) -> None:
    world.add_topic("t", 2)
    forged = batch(b"b", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    fields = ask(world, 9, "t", batch(b"a"), forged, transactional_id=transactional_id)
    answer = call(ProduceHandler(world.replicas), 9, fields)
    codes = [p.error_code for p in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert stored(world, "t") == []


def test_bad_input_internal_topics_are_refused(world: World) -> None:
    world.add_topic("__consumer_offsets")
    answer = one(
        call(ProduceHandler(world.replicas), 9, ask(world, 9, "__consumer_offsets", batch(b"x")))
    )
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [9, 13])
def test_bad_input_the_metadata_log_cannot_be_written(world: World, version: int) -> None:
    topic_id = ZERO_UUID[:-1] + b"\x01"
    fields = ask(world, version, "__cluster_metadata", batch(b"x"))
    if version >= 13:
        fields["topic_data"][0]["topic_id"] = topic_id
    answer = one(call(ProduceHandler(world.replicas), version, fields))
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == expected


@pytest.mark.parametrize("version", [9, 13])
async def test_bad_input_no_client_id_writes_the_tiers_metadata(world: World, version: int) -> None:
    topic = "__remote_log_metadata"

    world.add_topic(topic)
    handler = ProduceHandler(world.replicas)
    for client_id in ("intruder", CLIENT_ID, "tier", "Tidemark:tier"):
        refused = start(handler, version, ask(world, version, topic, batch(b"x")), client_id)
        code = one(finish(handler, version, refused)).error_code
        assert code == ErrorCode.POLICY_VIOLATION, client_id
    fields = ask(world, version, topic, batch(b"x"))
    taken = start(handler, version, fields, session=of_tier())
    assert one(finish(handler, version, await taken)).error_code == 0
    assert stored(world, topic) == [b"x"]


@pytest.mark.parametrize("version", range(3, 7))
def test_bad_input_zstd_is_too_new_for_old_versions(world: World, version: int) -> None:
    world.add_topic("t")
    handler = ProduceHandler(world.replicas)
    answer = one(call(handler, version, ask(world, version, "t", batch(b"x" * 100, codec=4))))
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    answer = one(call(handler, 7, ask(world, 7, "t", batch(b"x" * 100, codec=4))))
    assert answer.error_code == 0


def test_acks_0_has_no_answer_and_a_failure_closes(world: World) -> None:
    world.add_topic("t")
    handler = ProduceHandler(world.replicas)
    assert call(handler, 9, ask(world, 9, "t", batch(b"x"), acks=0)) is None
    assert stored(world, "t") == [b"x"]
    damaged = batch(b"y")
    damaged[-1] ^= 1
    with pytest.raises(CloseConnection, match="CORRUPT_MESSAGE"):
        call(handler, 9, ask(world, 9, "t", damaged, acks=0))


async def test_a_durable_topic_is_committed_after_its_fsync(world: World) -> None:
    topic = "__remote_log_metadata"

    world.add_topic(topic)
    partition = world.replicas.require(topic, 0)
    handler = ProduceHandler(world.replicas)
    answer = start(handler, 9, ask(world, 9, topic, batch(b"x")), session=of_tier())
    waiting = asyncio.ensure_future(answer)
    assert partition.log.log_end_offset == 1
    assert partition.high_watermark == 0
    assert not waiting.done()
    assert one(finish(handler, 9, await waiting)).error_code == 0
    assert partition.high_watermark == 1
    assert partition.log.recovery_point == 1


def test_log_append_time_is_answered(world: World) -> None:
    world.add_topic("t", message_timestamp_type="LogAppendTime")
    answer = one(call(ProduceHandler(world.replicas), 9, ask(world, 9, "t", batch(b"x"))))
    assert answer.log_append_time_ms == world.clock.wall_ms()


def test_bad_input_too_few_replicas_in_sync_refuse_acks_all(world: World) -> None:
    world.add_topic("t", min_insync_replicas=2)
    world.change("t", replicas=(1, 2), isr=(1,))
    handler = ProduceHandler(world.replicas)
    answer = one(call(handler, 9, ask(world, 9, "t", batch(b"x"))))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert one(call(handler, 9, ask(world, 9, "t", batch(b"x"), acks=1))).error_code == 0


def test_a_follower_sends_clients_away(world: World) -> None:
    world.add_topic("t")
    world.change("t", replicas=(1, 2), leader=2)
    answer = one(call(ProduceHandler(world.replicas), 9, ask(world, 9, "t", batch(b"x"))))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("replicas", [(1, 2), (2,)])
@pytest.mark.parametrize("version", [9, 10, 13])
def test_who_does_not_lead_says_who_does(
    world: World, version: int, replicas: tuple[int, ...]
) -> None:
    world.add_topic("t")
    world.change("t", replicas=replicas, isr=(2,), leader=2, leader_epoch=5)
    handler = ProduceHandler(world.replicas, addresses=addresses)
    answer = call(handler, version, ask(world, version, "t", batch(b"x")))
    told = one(answer)
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = (told.current_leader.leader_id, told.current_leader.leader_epoch)
    hosts = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
    if version < 10:
        assert (leader, hosts) == ((-1, -1), [])
    else:
        assert (leader, hosts) == ((2, 5), [(2, "another.host", 9092)])


def test_bad_input_keyless_records_are_named_by_index(world: World) -> None:
    world.add_topic("t", cleanup_policy=frozenset({"compact"}))
    answer = one(call(ProduceHandler(world.replicas), 9, ask(world, 9, "t", batch(b"x", b"y"))))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in answer.record_errors] == [0, 1]
    assert answer.log_start_offset == 0
    assert answer.error_message


def test_what_is_appended_is_counted(world: World) -> None:
    world.add_topic("t")
    handler = ProduceHandler(world.replicas)
    data = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    size = len(data)
    for _ in range(2):  # the repeat is answered, and not counted
        assert one(call(handler, 9, ask(world, 9, "t", bytes(data)))).base_offset == 0
    counted = {s.name: s.value for s in world.metrics.samples() if s.labels == {"topic": "t"}}
    assert counted["kafka_server_BrokerTopicMetrics_BytesInPerSec_total"] == size
    assert counted["kafka_server_BrokerTopicMetrics_MessagesInPerSec_total"] == 2
    assert counted["kafka_server_BrokerTopicMetrics_TotalProduceRequestsPerSec_total"] == 2
