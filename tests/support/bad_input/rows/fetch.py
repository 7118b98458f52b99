"""Fetch and offsets."""

import struct

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import MB, On, case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import (
    RawClient,
    build,
    fetch,
    fetch_fields,
    header,
    produce,
)

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


@cases({f"N058 offset {offset}": offset for offset in (-1, -2, -(2**63), 3, 2**63 - 1)})
def offsets_that_are_not_there(stage: Stage, offset: int) -> None:
    topic = stage.topic()
    produce(stage.client, topic, batch(b"0", b"1"))
    answer = fetch(stage.client, topic, offset)
    assert (answer.error_code, len(answer.records)) == (OUT_OF_RANGE, 0)


@case("N058")
def below_the_log_start(stage: Stage) -> None:
    topic = stage.topic()
    for value in (b"0", b"1", b"2"):
        produce(stage.client, topic, batch(value))
    asked = {"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}
    answer = stage.client.ask(ApiKey.DELETE_RECORDS, 2, {"topics": [asked], "timeout_ms": 5000})
    deleted = answer.topics[0].partitions[0]
    assert (deleted.error_code, deleted.low_watermark) == (0, 2)
    assert fetch(stage.client, topic, 1).error_code == OUT_OF_RANGE
    assert fetch(stage.client, topic, 2).error_code == 0


@case("N059")
def sizes_of_zero(stage: Stage) -> None:
    topic = stage.topic()
    sizes = [len(batch(b"x" * size)) for size in (100, 200)]
    for size in (100, 200):
        produce(stage.client, topic, batch(b"x" * size))
    assert len(fetch(stage.client, topic, 0, partition_max_bytes=0).records) == sizes[0]
    assert len(fetch(stage.client, topic, 1, partition_max_bytes=0).records) == sizes[1]
    answer = stage.client.ask(ApiKey.FETCH, 11, fetch_fields(topic) | {"max_bytes": 0})
    assert len(answer.responses[0].partitions[0].records) == sizes[0]


@cases({f"N059 size {size}": size for size in (-1, -(2**31))})
def negative_sizes(stage: Stage, size: int) -> None:
    topic = stage.topic()
    produce(stage.client, topic, batch(b"x"))
    answer = fetch(stage.client, topic, partition_max_bytes=size)
    assert (answer.error_code, len(answer.records)) == (-1, 0)
    assert fetch(stage.client, topic).error_code == 0
    fields = fetch_fields(topic) | {"max_bytes": size}
    of_all = stage.client.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0]
    assert (of_all.error_code, len(of_all.records)) == (-1, 0)


@case("N059", on=On.NARROW)
def the_largest_sizes(stage: Stage) -> None:
    topic, limit = stage.topic(), 2**31 - 1
    for _ in range(20):
        assert produce(stage.client, topic, batch(b"x" * 100_000), acks=1).error_code == 0
    fields = fetch_fields(topic, partition_max_bytes=limit) | {"max_bytes": limit}
    answer = stage.client.ask(ApiKey.FETCH, 11, fields)
    size = len(answer.responses[0].partitions[0].records)
    assert 900_000 < size <= 1_048_576


@cases({f"N060 id {number}": number for number in (1, 4711, 2**31 - 1, -5)})
def an_invented_session(stage: Stage, session_id: int) -> None:
    more = {"session_id": session_id, "session_epoch": 3}
    answer = stage.client.ask(ApiKey.FETCH, 11, fetch_fields(stage.topic()) | more)
    assert (answer.error_code, answer.session_id, answer.responses) == (70, 0, [])


@case("N061", on=On.NARROW)
def very_many_sessions(stage: Stage) -> None:
    topic = stage.topic()
    produce(stage.client, topic, batch(b"x"))
    ids = []
    for _ in range(500):
        begin = fetch_fields(topic) | {"session_id": 0, "session_epoch": 0}
        answer = stage.client.ask(ApiKey.FETCH, 11, begin)
        assert (answer.error_code, len(answer.responses)) == (0, 1)
        ids.append(answer.session_id)
    assert len({one for one in ids if one}) <= 20
    assert ids[-1] == 0
    for session_id in filter(None, ids):  # leave none behind for the next case
        end = fetch_fields(topic) | {"session_id": session_id, "session_epoch": -1}
        stage.client.ask(ApiKey.FETCH, 11, end)


@case("N062")
def an_epoch_of_later_and_none(stage: Stage) -> None:
    topic = stage.topic()
    produce(stage.client, topic, batch(b"x"))
    for none in (-1, -2, -(2**31)):
        assert fetch(stage.client, topic, current_leader_epoch=none).error_code == 0
    newer = fetch(stage.client, topic, current_leader_epoch=1000).error_code
    assert newer == ErrorCode.UNKNOWN_LEADER_EPOCH


@case("N063")
def a_broker_without_a_replica(stage: Stage) -> None:
    topic = stage.topic()
    produce(stage.client, topic, batch(b"x"))
    known = stage.client.ask(ApiKey.METADATA, 7, {"topics": [{"name": topic}]})
    epoch = known.topics[0].partitions[0].leader_epoch
    stranger = {"replica_id": 77}
    with_epoch = fetch_fields(topic, current_leader_epoch=epoch) | stranger
    answer = stage.client.ask(ApiKey.FETCH, 11, with_epoch).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    answer = stage.client.ask(ApiKey.FETCH, 11, fetch_fields(topic) | stranger)
    code = answer.responses[0].partitions[0].error_code
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@case("N065", peak_bytes=150 * MB, alone=True)
def very_many_partitions(stage: Stage) -> None:
    topic, count = stage.topic(), 100_000
    produce(stage.client, topic, batch(b"x"))
    partitions = b"".join(struct.pack(">iqi", i, 0, 1 << 20) for i in range(count))
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, 1 << 26, 0, 1) + name
    head = header(ApiKey.FETCH, 4)
    stage.client.send_frame(head + body + struct.pack(">i", count) + partitions)
    found = stage.client.answer(ApiKey.FETCH, 4).responses[0].partitions
    assert len(found) == count
    assert (found[0].error_code, len(found[0].records)) == (0, len(batch(b"x")))
    assert found[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@case("N065")
def the_same_partition_very_often(stage: Stage) -> None:
    topic, count = stage.topic(), 10_000
    produce(stage.client, topic, batch(b"x" * 10_000))
    partitions = struct.pack(">iqi", 0, 0, 1 << 20) * count
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1) + name
    head = header(ApiKey.FETCH, 4)
    stage.client.send_frame(head + body + struct.pack(">i", count) + partitions)
    found = stage.client.answer(ApiKey.FETCH, 4).responses[0].partitions
    assert sum(len(one.records or b"") for one in found) <= 1 << 20


@cases({f"N066 timestamp {number}": number for number in (-7, -1000, -(2**63))})
def timestamps_that_mean_nothing(stage: Stage, timestamp: int) -> None:
    topic = stage.topic()
    asked = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
    answer = stage.client.ask(ApiKey.LIST_OFFSETS, 11, {"replica_id": -1, "topics": [asked]})
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def send_fetch(client: RawClient, fields: dict[str, object]) -> None:
    message = codec.request(ApiKey.FETCH)
    client.send_frame(header(ApiKey.FETCH, 11) + message.encode(build(message.cls, fields), 11))


@case("F01")
def parked_fetches_whose_clients_go_away_are_forgotten(stage: Stage) -> None:
    topic = stage.topic()
    waiting = fetch_fields(topic) | {"max_wait_ms": 2**31 - 1}
    clients = [stage.connect() for _ in range(20)]
    for one in clients:
        send_fetch(one, waiting)
    size = "kafka_server_DelayedOperationPurgatory_PurgatorySize"
    until(lambda: stage.broker.metric(size, delayedOperation="Fetch") == 20, "all are parked")
    for one in clients:
        one.socket.close()


@case("F02")
def negative_waits_and_minimum_sizes_do_not_wait(stage: Stage) -> None:
    topic = stage.topic()
    for fields in (
        {"max_wait_ms": -1, "min_bytes": 1},
        {"max_wait_ms": 2**31 - 1, "min_bytes": -1},
    ):
        answer = stage.client.ask(ApiKey.FETCH, 11, fetch_fields(topic) | fields)
        assert answer.responses[0].partitions[0].error_code == 0


@cases({f"F03 partition {index}": index for index in (-1, 1, 2**31 - 1, -(2**31))})
def partitions_that_are_not_there(stage: Stage, index: int) -> None:
    topic = stage.topic()
    assert fetch(stage.client, topic, partition=index).error_code == 3
    assert produce(stage.client, topic, batch(b"x"), index=index).error_code == 3
