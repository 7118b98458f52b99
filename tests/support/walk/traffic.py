"""The clients of one life of a walk: an idempotent producer, some consumers, and an admin."""

import threading
from collections.abc import Mapping, Sequence
from typing import Self

from confluent_kafka import KafkaException

from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.traffic import RETRIABLE, Lane, Reading, Writing

BURST = 4


class WalkTraffic:
    """Writes to some lanes until it is ended, also while the broker dies; reads some of them.

    Attributes:
        writing: what was sent and acknowledged.
    """

    def __init__(
        self, broker: BrokerProcess, ends: Mapping[Lane, int], read: Sequence[Lane]
    ) -> None:
        self.writing = Writing(broker, dict(ends), timeout_s=300, batch_records=BURST)
        self._readings = [Reading(broker, lane) for lane in read]
        self._quota, self._last_words = dict(ends), threading.Event()
        self._ends, self._stop, self._stop_reading = (
            dict(ends),
            threading.Event(),
            threading.Event(),
        )
        self._threads = [threading.Thread(target=self._write, daemon=True)]
        self._readers = [
            threading.Thread(target=self._read, args=(one,), daemon=True) for one in self._readings
        ]

    def acknowledged(self, count: int) -> None:
        """Write so many records more than at the begin to every lane, and wait for the answers."""
        self._quota = {lane: end + count for lane, end in self._ends.items()}
        until(
            lambda: (
                self.writing.failures
                or all(
                    self.writing.acknowledged[lane] >= end + count
                    for lane, end in self._ends.items()
                )
            ),
            f"{count} records of every lane are acknowledged",
        )
        self.check()

    def check(self) -> None:
        """Nobody met anything that was wrong so far."""
        assert not self.writing.failures, self.writing.failures[:3]
        for reading in self._readings:
            assert not reading.wrong, reading.wrong[:3]

    def go_on(self) -> None:
        """Write on and on: the broker is about to end."""
        self._last_words.set()

    def end_reading(self) -> None:
        """Close the consumers, while the broker still runs."""
        self._stop_reading.set()
        for thread in self._readers:
            thread.join(60)
            assert not thread.is_alive(), "a consumer does not end"

    def _write(self) -> None:
        while not self._stop.is_set():
            for lane in self._ends:
                sent, acknowledged = self.writing.sent[lane], self.writing.acknowledged[lane]
                is_due = sent < self._quota[lane] or self._last_words.is_set()
                if is_due and sent < acknowledged + 2 * BURST:
                    self.writing.send(lane, BURST)
            self.writing.poll(0.05)

    def _read(self, reading: Reading) -> None:
        while not self._stop_reading.is_set():
            try:
                reading.once(self._stop_reading)
            except KafkaException as error:
                if error.args[0].code() not in RETRIABLE and not error.args[0].retriable():
                    reading.wrong.append(f"{reading.lane}: {error}")
                    return

    def __enter__(self) -> Self:
        for thread in (*self._threads, *self._readers):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._stop_reading.set()
        for thread in (*self._threads, *self._readers):
            thread.join(60)
        self.writing.forget()
