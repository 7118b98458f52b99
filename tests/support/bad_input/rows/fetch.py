"""Fetch and offsets."""

import struct

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import MB, case, cases
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
