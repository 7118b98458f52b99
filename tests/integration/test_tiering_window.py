"""Between a broker's start and the tier's validation of a partition: nobody is told to skip.

The tier begins behind a gate of the test, so the validation waits until it is opened.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import select

from confluent_kafka import Consumer, TopicPartition

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.clients import end_offsets, produce
from tests.support.brokers.gated_tier import behind_gate, copy_of, deleted, put_back
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import (
    RawClient,
    build,
    fetch,
    fetch_fields,
    header,
    log_end,
)
from tests.support.brokers.tiered_partition import MakeBroker, fill, reasons
from tests.support.brokers.tiered_topics import tiered_away

WAIT_MS = 600_000
"""Longer than anybody waits here for an answer."""
READERS = 20


def epoch_end(client: RawClient, epoch: int) -> int:
    """The code that OffsetForLeaderEpoch answers."""
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    fields = {"replica_id": -1, "topics": [{"topic": "orders", "partitions": [asked]}]}
    answer = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, fields)
    return int(answer.topics[0].partitions[0].error_code)


def latest_tiered(client: RawClient) -> tuple[int, int]:
    """The code and the offset that ListOffsets -5 answers."""
    asked = {"partition_index": 0, "timestamp": -5}
    fields = {"replica_id": -1, "topics": [{"name": "orders", "partitions": [asked]}]}
    found = client.ask(ApiKey.LIST_OFFSETS, 9, fields).topics[0].partitions[0]
    return int(found.error_code), found.offset


def notes(broker: BrokerProcess) -> list[str]:
    """What health counts beside its reasons."""
    found: list[str] = broker.health()["notes"]
    return found


def is_named(broker: BrokerProcess) -> bool:
    return any("orders-0: log end lost" in each for each in reasons(broker))


@contextmanager
def at_the_end(broker: BrokerProcess) -> Iterator[Consumer]:
    """A consumer that has read the last record, and would skip to the end where it is sent away."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "fetch.error.backoff.ms": 10,
        }
    )
    _, end = end_offsets(broker, "orders")
    consumer.assign([TopicPartition("orders", 0, end - 1)])
    message = until(lambda: consumer.poll(1), "the last record is read")
    assert (message.error(), message.offset()) == (None, end - 1)
    try:
        yield consumer
    finally:
        consumer.close()


def test_a_consumer_above_an_old_log_end_waits_and_skips_nothing(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tiered=True)
    gate = behind_gate(broker)
    broker.start()
    older_end = fill(broker)
    broker.kill()
    older = copy_of(broker, tmp_path / "older")
    broker.start()
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
    tiered_away(broker, "orders")
    with at_the_end(broker) as consumer:
        broker.kill()
        newest = copy_of(broker, tmp_path / "newest")
        end = older_end + 25

        put_back(broker, older)
        gate.close()
        broker.start()

        def waits() -> bool:
            """No record and no error comes to the application."""
            return consumer.poll(0.2) is None

        with RawClient(broker) as client:
            assert fetch(client, "orders", end).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert fetch(client, "orders", older_end - 1).error_code == ErrorCode.NONE
            assert epoch_end(client, 0) == ErrorCode.KAFKA_STORAGE_ERROR
            assert log_end(client, "orders") == older_end, "whoever begins there skips nothing"
            assert deleted(client, end) == ErrorCode.KAFKA_STORAGE_ERROR
            assert latest_tiered(client) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
            assert not is_named(broker), "not validated yet"
            assert notes(broker) == ["tier: validated 0 of 1 partitions"]
            assert waits()
            produce(broker, "orders", [(None, b"produce does not wait")])
            assert waits()
            assert fetch(client, "orders", end).error_code == ErrorCode.KAFKA_STORAGE_ERROR

            gate.open()
            until(
                lambda: (
                    waits() and any("orders-0: log end lost" in each for each in reasons(broker))
                ),
                "health names the loss",
            )
            assert fetch(client, "orders", end).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert epoch_end(client, 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert notes(broker) == [], "validated: a loss"
        assert waits()

        broker.kill()
        put_back(broker, newest)
        broker.start()
        produce(broker, "orders", [(None, b"after the right directory came back")])
        message = until(lambda: consumer.poll(1), "the consumer continues")
        assert (message.error(), message.offset()) == (None, end)
        assert message.value() == b"after the right directory came back"
    until(lambda: reasons(broker) == [], "health is green")
    with RawClient(broker) as client:
        above = fetch(client, "orders", end + 100).error_code
        assert above == ErrorCode.OFFSET_OUT_OF_RANGE, "validated as sound"
        code, offset = latest_tiered(client)
        assert code == ErrorCode.NONE
        assert offset > 0
        assert epoch_end(client, 0) == ErrorCode.NONE
        gate.close()
        broker.kill_tier()
        above = fetch(client, "orders", end + 100).error_code
        assert above == ErrorCode.OFFSET_OUT_OF_RANGE, "it stays so without a tier"
        assert epoch_end(client, 0) == ErrorCode.NONE


def test_parked_remote_reads_continue_when_their_segments_are_known(
    make_broker: MakeBroker,
) -> None:
    """None of them looks again by itself: unless called, they wait out the time they may."""
    settings = {"remote.fetch.max.wait.ms": str(WAIT_MS)}
    broker = make_broker(tiered=True, settings=settings)
    gate = behind_gate(broker)
    broker.start()
    end = fill(broker)
    assert broker.terminate() == 0  # the log start stays known
    gate.close()
    broker.start()
    message = codec.request(ApiKey.FETCH)
    fields = fetch_fields("orders") | {"max_wait_ms": WAIT_MS}
    question = header(ApiKey.FETCH, 11) + message.encode(build(message.cls, fields), 11)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker)) for _ in range(READERS)]
        for client in clients:
            client.send_frame(question)
        with RawClient(broker) as other:  # asks after them, of the same loop
            assert log_end(other, "orders") == end
        for client in clients:
            assert not select([client.socket], [], [], 0)[0], "it waits"
        gate.open()
        for client in clients:
            found = client.answer(ApiKey.FETCH, 11).responses[0].partitions[0]
            assert found.error_code == ErrorCode.NONE
            assert len(found.records) > 0
