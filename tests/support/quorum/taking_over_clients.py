"""Clients that continue while a cluster changes under them, and what they may demand of it."""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

GROUP: Final = "readers"
SILENCE_S: Final = 60.0
"""Longer than any change of leaders may keep a client from its next record."""
_PACE_S: Final = 0.05
_Place = tuple[str, int]


class Writer:
    """An idempotent producer with acks=all, on a thread; each value is written once.

    Attributes:
        acknowledged: value by (topic, partition) and offset.
        wrong: what cannot be; a sentence each.
    """

    def __init__(self, servers: str, sizes: Mapping[str, int]) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "delivery.timeout.ms": 120_000,
            "linger.ms": 5,
        }
        self._sizes = sizes
        self.acknowledged: dict[_Place, dict[int, bytes]] = defaultdict(dict)
        self.wrong: list[str] = []
        self._end, self._number = threading.Event(), 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(len(one) for one in list(self.acknowledged.values()))

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(self._settings)
        while not self._end.is_set() and not self.wrong:
            for topic, size in self._sizes.items():
                value = b"%d %s " % (self._number, topic.encode())
                producer.produce(topic, value.ljust(size, b"."), on_delivery=self._delivered)
                self._number += 1
            self._end.wait(_PACE_S)
            producer.poll(0)
            while len(producer) > 100 and not self.wrong:
                producer.poll(0.1)
        left = producer.flush(120)
        if left:
            self.wrong.append(f"{left} records were not answered")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.wrong.append(f"{message.topic()}-{message.partition()}: {error}")
            return
        place = self.acknowledged[message.topic(), message.partition()]
        if message.offset() in place:
            self.wrong.append(f"offset {message.offset()} was given twice")
        place[message.offset()] = message.value()


class Reader:
    """A member of a group that commits what it has read, on a thread.

    Attributes:
        seen: value by (topic, partition) and offset.
        wrong: what cannot be; a sentence each.
    """

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
        }
        self._topics = topics
        self.seen: dict[_Place, dict[int, bytes]] = defaultdict(dict)
        self.wrong: list[str] = []
        self._committed: dict[_Place, set[int]] = defaultdict(set)
        self._next: dict[_Place, int] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(len(one) for one in list(self.seen.values()))

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe(list(self._topics), on_assign=self._assigned)
        unsaid = 0
        while not self._end.is_set() and not self.wrong:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._take(message)
                unsaid += 1
            elif message is not None and not message.error().retriable():
                code = message.error().code()
                if code not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    self.wrong.append(f"reader: {message.error()}")
            if unsaid >= 50:
                unsaid = self._commit(consumer, unsaid)
        self._commit(consumer, unsaid)
        consumer.close()

    def _assigned(self, _consumer: Any, _partitions: Any) -> None:
        self._next.clear()

    def _take(self, message: Any) -> None:
        place, offset = (message.topic(), message.partition()), message.offset()
        due = {self._next[place]} if place in self._next else self._committed[place] or {offset}
        if offset not in due:
            self.wrong.append(f"{place}: offset {offset} came where {due} was due")
        self._next[place] = offset + 1
        before = self.seen[place].setdefault(offset, message.value())
        if before != message.value():
            self.wrong.append(f"{place}: offset {offset} has another value now")

    def _commit(self, consumer: Consumer, unsaid: int) -> int:
        offsets = [TopicPartition(*place, end) for place, end in self._next.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:  # stored or not: the next one says it again
            for place, end in self._next.items():
                self._committed[place].add(end)
            return unsaid
        for place, end in self._next.items():
            self._committed[place] = {end}
        return 0


def read_all(servers: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    """Offsets and values of what is committed now, by partition, as they came.

    Records of a writer that continues come so often that a consumer sees no end.
    """
    settings = {"bootstrap.servers": servers, "group.id": "whole", "enable.auto.commit": False}
    consumer = Consumer(settings | {"enable.partition.eof": True, "auto.offset.reset": "error"})
    places = [TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(partitions)]
    ends = {one.partition: consumer.get_watermark_offsets(one, SILENCE_S)[1] for one in places}
    consumer.assign(places)
    found: dict[int, list[tuple[int, bytes]]] = {one: [] for one in ends}
    left = {one for one, end in ends.items() if end}
    while left:
        message = consumer.poll(SILENCE_S)
        assert message is not None, f"{topic}: nothing for {SILENCE_S} s after {_ends(found)}"
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            found[partition].append((offset, message.value()))
            if offset + 1 >= ends[partition]:
                left.discard(partition)
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(partition)
        else:
            assert error.retriable(), f"{topic}: {error} after {_ends(found)}"
    consumer.close()
    return found


def _ends(found: Mapping[int, list[tuple[int, bytes]]]) -> dict[int, int]:
    return {partition: read[-1][0] if read else -1 for partition, read in found.items()}


def contradictions(
    acknowledged: Mapping[_Place, Mapping[int, bytes]],
    topic: str,
    found: Mapping[int, list[tuple[int, bytes]]],
) -> list[str]:
    """What was lost, doubled or moved, of what a writer was told that it is there."""
    wrong = []
    values = [value for read in found.values() for _, value in read]
    if len(values) != len(set(values)):
        wrong.append(f"{topic}: {len(values) - len(set(values))} records are there twice")
    for partition, read in found.items():
        there = dict(read)
        for offset, value in acknowledged.get((topic, partition), {}).items():
            if there.get(offset) != value:
                wrong.append(f"{topic}-{partition}: offset {offset} is lost or is another record")
    return wrong
