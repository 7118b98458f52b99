"""Readers that continue while nodes are lost.

A group that commits, and some that lag behind permanently.

Each runs on threads of its own. What cannot be is noted and told by `validate`: the thread
continues.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.quorum.quorum import until_stalled

STALLED_S: Final = 60.0
REFRESHED: Final = {"topic.metadata.refresh.interval.ms": 1_000}
"""Of clients: a broker that is cut off answers them, and does not know that another leads."""
BATCH: Final = 50
PACE_S: Final = 0.1
"""Between two batches of a reader that lags: it is to take long, not to take the machine."""
CANNOT_BE: Final = frozenset({
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._BAD_MSG,
    KafkaError._LOG_TRUNCATION,
    KafkaError.INVALID_MSG,
    KafkaError.OFFSET_OUT_OF_RANGE,
})  # fmt: skip
"""Errors that no loss of a node or of a store excuses below what is committed."""

Place = tuple[int, int]
"""(partition, offset)."""
ValueOf = Callable[[bytes], bytes]
"""The value that belongs to a key."""


def _told(message: Message) -> tuple[int, int, bytes]:
    partition, offset, key = message.partition(), message.offset(), message.key()
    assert partition is not None
    assert offset is not None
    assert isinstance(key, bytes)
    return partition, offset, key


class Reading:
    """A group that reads a topic all the time, and commits.

    Attributes:
        read: keys by place.
        committed: by partition, what the group's coordinator has confirmed.
        errors: what the clients have told.
        wrong: what cannot be.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        read: dict[Place, bytes] | None = None,
        members: int = 1,
    ) -> None:
        """Join the group; `read`: what it has read before."""
        self.read = {} if read is None else read
        self.committed: dict[int, int] = {}
        self.errors: list[str] = []
        self.wrong: list[str] = []
        self._servers, self._topic, self._stopping = servers, topic, threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(members)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        settings = {"group.id": "readers", "auto.offset.reset": "earliest"} | REFRESHED
        settings |= {"auto.commit.interval.ms": 1_000, "on_commit": self._on_commit}
        consumer = Consumer(settings | {"bootstrap.servers": self._servers})
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
            elif message is not None:
                self._take(message)
        consumer.close()

    def _take(self, message: Message) -> None:
        partition, offset, key = _told(message)
        if offset < self.committed.get(partition, 0):
            committed = self.committed[partition]
            self.wrong.append(f"{partition}: read {offset} again, {committed} was committed")
        if self.read.setdefault((partition, offset), key) != key:
            self.wrong.append(f"{partition}: offset {offset} had another record before")

    def _on_commit(self, error: object, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            if error is None and one.error is None and one.offset >= 0:
                self.committed[one.partition] = one.offset


class Lagging:
    """Reads a topic from its first record to its end again and again, and compares each record.

    Nothing but the active segments of a tiered topic is local, so it reads from the store.

    Attributes:
        passes: how often it has come to the end that it saw when it began.
        records: how many it has read.
        errors: what the client has told.
        wrong: what cannot be.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        acknowledged: Sequence[Mapping[int, bytes]],
        value_of: ValueOf,
    ) -> None:
        """`acknowledged`: for each partition keys by offset, which grow meanwhile."""
        self.passes = self.records = 0
        self.errors: list[str] = []
        self.wrong: list[str] = []
        self._servers, self._topic = servers, topic
        self._acknowledged, self._value_of = acknowledged, value_of
        self._seen: dict[Place, bytes] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 2_048,
            "fetch.message.max.bytes": 262_144,
        }
        consumer = Consumer(settings | REFRESHED)
        while not self._stopping.is_set():
            try:
                self._pass(consumer)
            except KafkaException as error:
                self.errors.append(str(error))
        consumer.close()

    def _pass(self, consumer: Consumer) -> None:
        count = len(self._acknowledged)
        places = [TopicPartition(self._topic, one, 0) for one in range(count)]
        ends = {one.partition: consumer.get_watermark_offsets(one, timeout=10)[1] for one in places}
        positions = dict.fromkeys(ends, 0)
        consumer.assign(places)
        while any(positions[one] < end for one, end in ends.items()):
            if self._stopping.wait(PACE_S):
                return
            for message in consumer.consume(BATCH, 0.1):
                self._take(message, positions)
        self.passes += 1

    def _take(self, message: Message, positions: dict[int, int]) -> None:
        error = message.error()
        if error is not None:
            told = self.wrong if error.code() in CANNOT_BE else self.errors
            told.append(f"{message.partition()}: {error}")
            return
        partition, offset, key = _told(message)
        if offset != positions[partition]:
            self.wrong.append(f"{partition}: offset {offset} came after {positions[partition] - 1}")
        positions[partition] = offset + 1
        told_key = self._acknowledged[partition].get(offset, key)
        if {key} != {told_key, self._seen.setdefault((partition, offset), key)}:
            self.wrong.append(f"{partition}: another record is at offset {offset}")
        if message.value() != self._value_of(key):
            self.wrong.append(f"{partition}: other bytes are at offset {offset}")
        self.records += 1


async def until_read(
    acknowledged: Iterable[Sequence[Mapping[int, bytes]]], reading: Reading
) -> None:
    """Wait until the group has all that was acknowledged, for each producer keys by place."""
    wanted = {
        ((partition, offset), key)
        for of_one in acknowledged
        for partition, keys in enumerate(of_one)
        for offset, key in keys.items()
    }
    try:
        await until_stalled(
            lambda: wanted <= reading.read.items(),
            lambda: len(reading.read),
            "the group has read everything",
            stalled_s=STALLED_S,
        )
    except AssertionError as error:
        missing = sorted(wanted - reading.read.items())
        ends: dict[int, int] = {}
        for partition, offset in reading.read:
            ends[partition] = max(offset, ends.get(partition, -1))
        other = {place: reading.read.get(place) for place, _ in missing[:5]}
        raise AssertionError(
            f"{error}: {len(missing)} of {len(wanted)} are missing: {missing[:5]}; read instead: "
            f"{other}; last read: {ends}; consumer: {reading.errors[-5:]}"
        ) from None
    assert not reading.wrong, reading.wrong[:5]
