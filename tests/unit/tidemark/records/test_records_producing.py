"""Lines on a fake producer: what is acknowledged, what fails by its number, and where it ends."""

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_client.blocking import ClusterError
from tidemark.records.client import RecordsClient
from tidemark.records.lines import LineForm
from tidemark.records.producing import (
    FAILURES_MAX,
    Asked,
    Outcome,
    lines_of,
    open_producer,
    produce,
)
from tidemark.records.settings import Translated

KEYS = LineForm(key_separator=b":")
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class FakeProducer:
    """Answers when it is flushed; has room for a few records, and refuses values as it is told."""

    def __init__(self, room: int = 100, refused: tuple[bytes, ...] = (), purges: bool = False):
        self.room, self.refused, self.purges = room, refused, purges
        self.sent: list[dict[str, Any]] = []
        self.waiting: list[tuple[Any, bytes | None]] = []
        self.was_purged = False
        self.hear: Any = None

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        found = SimpleNamespace(error=None, partitions={0: None, 1: None})
        return SimpleNamespace(topics={"orders": found})

    def produce(self, topic: str, **given: Any) -> None:
        if len(self.waiting) == self.room:
            raise BufferError
        if given["value"] == b"local":
            raise KafkaException(TOO_LARGE)
        self.waiting.append((given.pop("on_delivery"), given["value"]))
        self.sent.append(given)

    def __len__(self) -> int:
        return len(self.waiting)

    def poll(self, timeout_s: float) -> None:
        if timeout_s:
            self._answer()

    def flush(self, timeout_s: float) -> int:
        if self.purges and not self.was_purged:
            raise KeyboardInterrupt
        self._answer()
        return 0

    def purge(self) -> None:
        self.was_purged = True
        for done, _ in self.waiting:
            done(KafkaError(KafkaError._PURGE_QUEUE), None)
        self.waiting.clear()

    def _answer(self) -> None:
        for done, value in self.waiting:
            done(TOO_LARGE if value in self.refused else None, None)
        self.waiting.clear()


def run(
    producer: FakeProducer, lines: Any, said: list[str] | None = None, **changes: Any
) -> Outcome:
    def make(settings: dict[str, Any]) -> FakeProducer:
        producer.hear = settings["error_cb"]
        return producer

    client = RecordsClient(make, "127.0.0.1:9", Translated({}, 1, ()), {})
    asked = Asked("orders", **{"form": LineForm(), **changes})
    return produce(client, asked, lines, ([] if said is None else said).append)


def test_each_line_is_a_record_without_its_newline() -> None:
    producer = FakeProducer()
    done = run(producer, [b"a:1\n", b"b:2"], form=KEYS, partition=1, headers=(("h", None),))
    assert producer.sent == [
        {"key": b"a", "value": b"1", "headers": [("h", None)], "partition": 1},
        {"key": b"b", "value": b"2", "headers": [("h", None)], "partition": 1},
    ]
    assert done.is_good
    assert done.acknowledged == 2


def test_a_full_queue_is_waited_for_and_nothing_is_left_out() -> None:
    producer = FakeProducer(room=3)
    assert run(producer, [b"%d\n" % n for n in range(10)]).acknowledged == 10
    assert [one["value"] for one in producer.sent] == [b"%d" % n for n in range(10)]


def test_refused_lines_are_named_by_number_and_the_others_continue() -> None:
    producer = FakeProducer(refused=(b"big",))
    done = run(producer, [b"a\n", b"big\n", b"local\n", b"d\n"])
    assert (done.acknowledged, done.failed, done.is_good) == (2, 2, False)
    assert sorted(line for line, _ in done.failures) == [2, 3]
    assert all("size too large" in why for _, why in done.failures)


def test_of_many_failures_the_first_are_named_and_all_are_counted() -> None:
    done = run(FakeProducer(refused=(b"big",)), [b"big\n"] * 50)
    assert done.failed == 50
    assert [line for line, _ in done.failures] == [*range(1, FAILURES_MAX + 1)]


def test_failures_are_said_before_the_input_ends_and_twenty_at_most() -> None:
    producer, said = FakeProducer(room=1, refused=(b"big",)), list[str]()

    def lines() -> Iterator[bytes]:
        yield from (b"big\n", b"a\n", b"b\n")
        assert [one.partition(":")[0] for one in said] == ["line 1"]
        yield from [b"big\n"] * 50

    assert run(producer, lines(), said).failed == 51
    assert len(said) == FAILURES_MAX


def test_an_absent_broker_is_reported_seldom_and_only_while_records_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([1_000.0, 1_000.1, 1_000.2, 1_006.0])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr("tidemark.records.producing.time", clock)
    producer, said = FakeProducer(), list[str]()
    refused = "h:1/1: Connect to ipv4#h:1 failed: Connection refused (after 0ms in state CONNECT)"

    def lines() -> Iterator[bytes | None]:
        producer.hear(KafkaError(KafkaError._TRANSPORT, refused))
        yield None  # nothing waits: nothing is said
        producer.hear(
            KafkaError(KafkaError._TRANSPORT, "h:1/1: Disconnected (after 9ms in state UP)")
        )
        yield b"a\n"
        assert len(said) == 1
        yield None
        yield b"b\n"
        assert len(said) == 1
        yield None
        assert len(said) == 2
        producer.poll(1)
        yield b"c\n"  # it answers again

    assert run(producer, lines(), said).acknowledged == 3
    assert set(said) == {
        "127.0.0.1:9: Connect to ipv4#h:1 failed: Connection refused; waiting for it"
    }


def test_lines_come_one_by_one_and_a_pause_is_none() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\ntw")
    lines = lines_of(reading)
    assert [next(lines), next(lines)] == [b"one\n", None]
    os.write(writing, b"o\n\nlast")
    assert [next(lines), next(lines)] == [b"two\n", b"\n"]
    os.close(writing)
    assert list(lines) == [b"last"]
    os.close(reading)


def test_a_line_without_its_key_ends_reading_and_sent_records_are_awaited() -> None:
    producer = FakeProducer()
    done = run(producer, [b"a:1\n", b"none\n", b"c:3\n"], form=KEYS)
    assert (done.acknowledged, done.is_good) == (1, False)
    assert done.unread == "line 2: there is no key separator ':'"
    assert len(producer.sent) == 1


def test_ctrl_c_ends_reading_and_what_was_sent_is_waited_for() -> None:
    def lines() -> Iterator[bytes]:
        yield b"a\n"
        raise KeyboardInterrupt

    done = run(FakeProducer(), lines())
    assert (done.acknowledged, done.is_interrupted, done.is_good) == (1, True, False)


def test_ctrl_c_again_counts_what_is_not_answered_as_failed() -> None:
    done = run(FakeProducer(purges=True), [b"a\n", b"b\n"])
    assert (done.acknowledged, done.failed, done.is_interrupted) == (0, 2, True)


def test_a_wrong_partition_sends_nothing() -> None:
    producer = FakeProducer()
    with pytest.raises(ClusterError, match="no partition 2 of orders: it has partitions 0 to 1"):
        run(producer, [b"a\n"], partition=2)
    assert producer.sent == []


@pytest.mark.parametrize(
    ("acks", "given"), [(None, {}), ("0", {}), ("1", {}), ("all", {}), (None, {"acks": "1"})]
)
def test_any_acks_make_a_producer(acks: str | None, given: dict[str, str]) -> None:
    """librdkafka refuses idempotence without `acks=all`."""
    made = open_producer("127.0.0.1:9", Translated(given, None, ()), acks, "zstd")
    assert made.bootstrap == "127.0.0.1:9"
