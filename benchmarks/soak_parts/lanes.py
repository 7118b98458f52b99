"""The good clients of topic `lanes`, with librdkafka: no acknowledged record is lost or wrong.

Each lane is a partition with one idempotent producer, so the record at an offset follows from lane
and offset. A consumer that is never far behind compares every record, and a group commits.
"""

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.soak_parts.line import Tally
from benchmarks.soak_parts.records import LANES, value_of

PRODUCERS = 2
GROUP_MEMBERS = 2
CLIENTS = PRODUCERS + LANES + GROUP_MEMBERS
BURST_RECORDS = 10
BURSTS_PER_S = 10
BATCH_BYTES = 64_000
"""Small enough that the records which wait for a busy broker fit a segment of the topic."""
ACKNOWLEDGED_S = 30
"""So long after the last record was sent all are acknowledged."""
SILENCE_S = 20
"""Without one more record read, the rest is given up."""
END_S = 100
"""All of that, and closing."""


class Lanes(threading.Thread):
    """Everything of it on one thread; the work is librdkafka's.

    Attributes:
        acknowledged, checked: Of each lane, the offset after the last record.
        failed: Clients of it that gave up.
    """

    def __init__(self, bootstrap: str, tally: Tally) -> None:
        super().__init__(daemon=True)
        self._tally = tally
        self._stopping = threading.Event()
        self.sent, self.acknowledged, self.checked = [0] * LANES, [0] * LANES, [0] * LANES
        usual = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}
        idempotent: dict[str, Any] = {**usual, "enable.idempotence": True, "linger.ms": 20}
        idempotent["batch.size"] = BATCH_BYTES
        self._producers = [Producer(idempotent) for _ in range(PRODUCERS)]
        quiet = {**usual, "auto.offset.reset": "error", "enable.auto.commit": False}
        small = {"queued.max.messages.kbytes": 1_024, "fetch.message.max.bytes": 1 << 17}
        alone: dict[str, Any] = {**quiet, **small, "group.id": "unused", "check.crcs": True}
        self._tails = [Consumer(alone) for _ in range(LANES)]
        shared = {**usual, **small, "group.id": "readers", "auto.offset.reset": "earliest"}
        self._group = [Consumer(shared) for _ in range(GROUP_MEMBERS)]
        self._stage = "sending"

    def run(self) -> None:
        for lane, consumer in enumerate(self._tails):
            consumer.assign([TopicPartition("lanes", lane, 0)])
        for consumer in self._group:
            consumer.subscribe(["lanes"])
        while not self._stopping.is_set():
            self._send()
            self._look()
            self._stopping.wait(1 / BURSTS_PER_S)
        self._stage = "are acknowledged"
        until = time.monotonic() + ACKNOWLEDGED_S
        for producer in self._producers:
            producer.flush(max(0.0, until - time.monotonic()))
        self._stage = "are read"
        self._read_to_the_end()
        for n, consumer in enumerate((*self._tails, *self._group)):
            self._stage = f"{n} consumers are closed"
            consumer.close()

    def _read_to_the_end(self) -> None:
        read, last = sum(self.checked), time.monotonic()
        while self.checked != self.sent and time.monotonic() - last < SILENCE_S:
            self._look()
            if sum(self.checked) != read:
                read, last = sum(self.checked), time.monotonic()
            time.sleep(0.05)

    def stop(self) -> None:
        """Send no more, wait until all that was acknowledged has been read, and end."""
        self._stopping.set()
        self.join(END_S)
        if self.is_alive():
            self._tally.complain(f"lanes did not end within {END_S} s: {self.progress()}")
        for lane in range(LANES):
            sent, told, read = self.sent[lane], self.acknowledged[lane], self.checked[lane]
            if not sent == told == read:
                self._tally.complain(
                    f"lane {lane}: {sent} sent, {told} acknowledged, {read} read and compared"
                )

    def progress(self) -> str:
        """How far the end is."""
        sent, told, read = sum(self.sent), sum(self.acknowledged), sum(self.checked)
        return f"lanes, {self._stage}: {sent} sent, {told} acknowledged, {read} read and compared"

    def _send(self) -> None:
        for lane in range(LANES):
            producer = self._producers[lane % PRODUCERS]
            for _ in range(BURST_RECORDS):
                offset = self.sent[lane]
                value = value_of(lane, offset)
                try:
                    producer.produce("lanes", value, partition=lane, on_delivery=self._delivered)
                except BufferError:
                    break
                self.sent[lane] += 1
        for producer in self._producers:
            producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        lane, offset = message.partition(), message.offset()
        if error is not None:
            self._tally.complain(f"lane {lane}: a record was not taken: {error}")
            return
        if offset != self.acknowledged[lane]:
            self._tally.complain(
                f"lane {lane}: acknowledged at {offset}, {self.acknowledged[lane]} is due"
            )
        self.acknowledged[lane] = offset + 1
        self._tally.counts["lanes acknowledged"] += 1
        self._tally.latencies_ms["librdkafka"].append((message.latency() or 0) * 1_000)

    def _look(self) -> None:
        for lane, consumer in enumerate(self._tails):
            for message in consumer.consume(500, 0.0):
                self._compare(lane, message)
        for member, consumer in enumerate(self._group):
            for message in consumer.consume(500, 0.0):
                if message.error() is None:
                    self._tally.counts["lanes read by the group"] += 1
                else:
                    self._tally.counts[f"group member {member}: {message.error().name()}"] += 1

    def _compare(self, lane: int, message: Message) -> None:
        error = message.error()
        if error is not None:
            if not error.retriable() and error.code() != KafkaError._TRANSPORT:
                self._tally.complain(f"lane {lane} at {self.checked[lane]}: {error}")
            self._tally.counts[f"lane reads: {error.name()}"] += 1
            return
        due, offset = self.checked[lane], message.offset()
        if offset != due or message.value() != value_of(lane, offset):
            self._tally.complain(f"lane {lane}: {message.value()[:20]!r} at {offset}, {due} is due")
        self.checked[lane] = offset + 1
        self._tally.counts["lanes compared"] += 1
