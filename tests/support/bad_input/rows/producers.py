"""Who produces, and where to: topics that are not for clients, and idempotent producers."""

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch
from tests.support.brokers.raw_client import log_end, produce


def idempotent(*values: bytes, sequence: int, epoch: int = 0, producer_id: int = 7) -> bytes:
    return bytes(
        batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


@cases(
    {
        "N045 consumer offsets": ("__consumer_offsets", {17}),
        "N046 cluster metadata": ("__cluster_metadata", {3}),
        "N047 remote log metadata": ("__remote_log_metadata", {44}),
        "N083 path to produce to": ("../../etc/x", {3, 17}),
    }
)
def topics_that_are_not_for_clients(stage: Stage, asked: tuple[str, set[int]]) -> None:
    name, codes = asked
    assert produce(stage.client, name, batch(b"x")).error_code in codes


@case("N046")
def the_metadata_log_has_no_id_for_clients(stage: Stage) -> None:
    sent = {
        "topic_id": (1).to_bytes(16, "big"),
        "partition_data": [{"index": 0, "records": bytes(batch(b"x"))}],
    }
    fields = {"acks": -1, "timeout_ms": 5000, "topic_data": [sent]}
    answer = stage.client.ask(ApiKey.PRODUCE, 13, fields)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@case("N048")
def a_gap_in_the_sequence(stage: Stage) -> None:
    topic = stage.topic()
    assert produce(stage.client, topic, idempotent(b"a", sequence=0)).error_code == 0
    assert produce(stage.client, topic, idempotent(b"c", sequence=2)).error_code == 45
    assert produce(stage.client, topic, idempotent(b"b", sequence=1)).base_offset == 1


@case("N049")
def repeats_of_the_last_five(stage: Stage) -> None:
    topic = stage.topic()
    sent = [idempotent(b"%d" % i, b"more", sequence=2 * i) for i in range(6)]
    offsets = [produce(stage.client, topic, one).base_offset for one in sent]
    assert offsets == [0, 2, 4, 6, 8, 10]
    assert [produce(stage.client, topic, one).base_offset for one in sent[1:]] == offsets[1:]
    assert produce(stage.client, topic, sent[0]).error_code == 45
    assert log_end(stage.client, topic) == 12


@case("N050")
def an_old_producer_epoch(stage: Stage) -> None:
    topic = stage.topic()
    assert produce(stage.client, topic, idempotent(b"a", sequence=0, epoch=2)).error_code == 0
    assert produce(stage.client, topic, idempotent(b"b", sequence=0, epoch=1)).error_code == 47
    assert log_end(stage.client, topic) == 1


@case("N051")
def first_sequences(stage: Stage) -> None:
    topic = stage.topic()
    assert produce(stage.client, topic, idempotent(b"a", sequence=7)).error_code == 45
    assert produce(stage.client, topic, batch(b"a")).error_code == 0
    assert produce(stage.client, topic, idempotent(b"a", sequence=7)).error_code == 0
    assert produce(stage.client, topic, idempotent(b"b", sequence=7, epoch=1)).error_code == 45
    assert log_end(stage.client, topic) == 2
