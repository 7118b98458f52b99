"""Producers and consumers that run while a test breaks things, and compare every record.

The record at an offset is a function of topic, partition and offset: the producer is idempotent and
alone, so any consumer can tell by itself whether a record is missing, doubled or wrong.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.brokers.clients import end_offsets
from tests.support.brokers.process import BrokerProcess

VALUE_BYTES = 4_500
Lane = tuple[str, int]
"""Topic and partition."""

RETRIABLE = {
    KafkaError.INVALID_MSG,  # 2: Kafka's CORRUPT_MESSAGE
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""What Kafka calls retriable, as far as a Fetch can say it."""


def value_of(lane: Lane, offset: int) -> bytes:
    """The only value that a record there can have."""
    text = b"%s/%d/%012d/" % (lane[0].encode(), lane[1], offset)
    return (text * (VALUE_BYTES // len(text) + 1))[:VALUE_BYTES]


def key_of(offset: int) -> bytes:
    return b"%d" % offset


def complaint(lane: Lane, offset: int, message: Message) -> str:
    """What is wrong with a message where that of `offset` is due; empty: nothing."""
    if message.offset() != offset:
        return f"{lane}: offset {message.offset()} where {offset} is due"
    if message.key() != key_of(offset) or message.value() != value_of(lane, offset):
        return f"{lane}: another record at offset {offset}: {(message.value() or b'')[:60]!r}"
    return ""


def produce_next(
    broker: BrokerProcess, lane: Lane, first: int, count: int, *, timeout_s: int = 120
) -> None:
    """Write the records [first, first + count) of a lane; all are acknowledged at their offsets."""
    with Writing(broker, {lane: first}, timeout_s=timeout_s) as writing:
        writing.send(lane, count)
        writing.flush()


class Writing:
    """An idempotent producer that knows where each record belongs.

    Attributes:
        sent, acknowledged: next offset of each lane.
        failures: what went wrong, in the order of its happening.
    """

    def __init__(
        self,
        broker: BrokerProcess,
        lanes: dict[Lane, int],
        *,
        timeout_s: int = 120,
        batch_records: int = 10_000,
    ) -> None:
        self.sent, self.acknowledged = dict(lanes), dict(lanes)
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.num.messages": batch_records,
                "message.timeout.ms": timeout_s * 1_000,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def send(self, lane: Lane, count: int) -> None:
        for offset in range(self.sent[lane], self.sent[lane] + count):
            self._send_one(lane, offset)
        self.sent[lane] += count

    def _send_one(self, lane: Lane, offset: int) -> None:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{lane} {offset}: {error}")
            elif message.offset() != offset:
                self.failures.append(f"{lane} {offset}: was given {message.offset()}")
            else:
                self.acknowledged[lane] = offset + 1

        while True:
            try:
                self._producer.produce(
                    lane[0],
                    key=key_of(offset),
                    value=value_of(lane, offset),
                    partition=lane[1],
                    on_delivery=on_delivery,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def flush(self) -> None:
        left = self._producer.flush(180)
        assert left == 0, f"{left} records were not acknowledged"
        assert not self.failures, self.failures[:3]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()

    def forget(self) -> None:
        """Send nothing more, also to a broker that starts at the same address."""
        self._producer.purge()
        del self._producer


@dataclass
class Reading:
    """A consumer of one lane that compares what it gets.

    Attributes:
        checked: records compared.
        errors: codes of the errors that the application met.
        wrong: complaints.
    """

    broker: BrokerProcess
    lane: Lane
    checked: int = 0
    errors: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def messages(self, consumer: Consumer, end: int, stop: threading.Event) -> Iterator[Message]:
        """Everything from where `consumer` stands up to `end`, errors counted on the way."""
        position = 0
        while position < end and not stop.is_set():
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    position = message.offset() + 1
                    yield message
                else:
                    self.errors[error.code()] += 1
                    if error.code() not in RETRIABLE:
                        self.wrong.append(f"{self.lane}: {error}")
                        return

    def once(self, stop: threading.Event) -> bool:
        """Read from log start to the end seen at the begin; whether it came so far."""
        partition = TopicPartition(*self.lane)
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.error.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
            }
        )
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=60)
            consumer.assign([TopicPartition(*self.lane, low)])
            due = low
            for message in self.messages(consumer, high, stop) if high > low else ():
                wrong = complaint(self.lane, due, message)
                if wrong:
                    self.wrong.append(wrong)
                    return False
                due += 1
                self.checked += 1
            return due >= high
        finally:
            consumer.close()


class Traffic:
    """A producer of some lanes, and a consumer of each of `read`: begin to end, over and over.

    Attributes:
        writing: the producer's state.
        rounds: how often each lane was read from start to end.
    """

    def __init__(
        self, broker: BrokerProcess, bursts: Mapping[Lane, int], read: Sequence[Lane]
    ) -> None:
        """`bursts`: how many records of each lane are sent at once, about 20 times a second."""
        self.writing = Writing(broker, dict.fromkeys(bursts, 0))
        self.readings = [Reading(broker, lane) for lane in read]
        self.rounds: Counter[Lane] = Counter()
        self.broken: list[str] = []
        self._bursts = dict(bursts)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._write,), daemon=True),
            *(
                threading.Thread(target=self._guarded, args=(self._read, reading), daemon=True)
                for reading in self.readings
            ),
        ]

    def _guarded(self, run: object, *arguments: object) -> None:
        try:
            run(*arguments)  # type: ignore[operator]
        except (AssertionError, KafkaException) as error:
            self.broken.append(repr(error))

    def _write(self) -> None:
        while not self._stop.is_set():
            for lane, count in self._bursts.items():
                self.writing.send(lane, count)
            self.writing.poll(0)
            self._stop.wait(0.05)
        self.writing.flush()

    def _read(self, reading: Reading) -> None:
        while not self._stop.is_set():
            if reading.once(self._stop):
                self.rounds[reading.lane] += 1

    def check(self) -> None:
        """Nobody met anything that was wrong so far."""
        assert not self.broken, self.broken[:3]
        assert not self.writing.failures, self.writing.failures[:3]
        for reading in self.readings:
            assert not reading.wrong, reading.wrong[:3]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(200)
            assert not thread.is_alive(), "a client does not end"


def read_back(broker: BrokerProcess, lane: Lane) -> tuple[int, int]:
    """Compare every record between log start and end; returns both.

    Where retention moves the log start past what is just read, it begins again there.
    """
    while True:
        low, high = end_offsets(broker, *lane)
        reading = Reading(broker, lane)
        if reading.once(threading.Event()):
            assert not reading.wrong, reading.wrong
            return low, high
        assert end_offsets(broker, *lane)[0] > low, reading.wrong
