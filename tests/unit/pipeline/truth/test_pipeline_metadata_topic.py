"""The metadata topic as a planner reads it, from a broker that is a list of batches."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import read_header
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, EpochEntry, TopicIdPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.asker import Asker
from pipeline.truth.metadata_topic import MetadataTopic, OneAhead
from rlmm import records
from rlmm.api import Fence, SegmentUpdate
from rlmm.events import MetadataEvent, SegmentAdded, SegmentUpdated, Stamp
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.support.sim.clock import ManualClock

ONE = TopicIdPartition(b"1" * 16, 0, "one")
TWO = TopicIdPartition(b"2" * 16, 0, "two")
STAMP = Stamp(Fence(0, 1))
CHAIN = [EpochEntry(0, 0)]


class MetadataBroker(BlockingClient):
    """The leader of a topic of one partition; `fetched` are the offsets that it was asked for."""

    def __init__(self, log_start: int = 0) -> None:
        super().__init__("one:1")
        self.batches: list[bytearray] = []
        self.log_start = log_start
        self.end = log_start
        self.epoch = 3
        self.fetched: list[int] = []

    def write(self, *values: bytes, key: bytes | None = None, codec: int = 0) -> None:
        told = [(0, key, value, []) for value in values]
        batch = build_batch(told, base_offset=self.end, leader_epoch=self.epoch, codec=codec)
        self.batches.append(batch)
        self.end += len(values)

    def present(self, addresses: Iterable[Address], *_: object) -> Iterator[Address]:
        return iter(dict.fromkeys(addresses))

    def ask(self, address: Address, api_key: int, version: int, body: Any) -> Any:
        answer = codec.response(api_key).cls
        return getattr(self, ApiKey(api_key).name.lower())(answer, body)

    def metadata(self, answer: Any, _body: Any) -> Any:
        part = answer.Topics.Partitions(partition_index=0, leader_id=1, leader_epoch=self.epoch)
        name = REMOTE_LOG_METADATA_TOPIC
        return answer(
            cluster_id="c",
            brokers=[answer.Brokers(node_id=1, host="one", port=1)],
            topics=[answer.Topics(name=name, topic_id=bytes(16), partitions=[part])],
        )

    def list_offsets(self, answer: Any, _body: Any) -> Any:
        part = answer.Topics.Partitions(partition_index=0, offset=self.end)
        return answer(topics=[answer.Topics(name=REMOTE_LOG_METADATA_TOPIC, partitions=[part])])

    def fetch(self, answer: Any, body: Any) -> Any:
        (asked,) = body.topics[0].partitions
        self.fetched.append(asked.fetch_offset)
        part = answer.Responses.Partitions(
            partition_index=0, log_start_offset=self.log_start, high_watermark=self.end
        )
        if not self.log_start <= asked.fetch_offset <= self.end:
            part.error_code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        elif asked.last_fetched_epoch > self.epoch:
            part.diverging_epoch = answer.Responses.Partitions.DivergingEpoch(
                epoch=self.epoch, end_offset=asked.fetch_offset - 1
            )
        else:
            left = [b for b in self.batches if read_header(b).next_offset > asked.fetch_offset]
            part.records = memoryview(b"".join(left[:3]))
        topic = answer.Responses(topic=REMOTE_LOG_METADATA_TOPIC, partitions=[part])
        return answer(responses=[topic])


def events(partition: TopicIdPartition, number: int) -> list[MetadataEvent]:
    segment_id = RemoteLogSegmentId(partition, number.to_bytes(16, "big"))
    metadata = RemoteLogSegmentMetadata(
        segment_id, number * 10, number * 10 + 9, 5, 1, 5, 100, (EpochEntry(0, number * 10),)
    )
    update = SegmentUpdate(segment_id, SegmentState.COPY_SEGMENT_FINISHED, 6, 1)
    return [SegmentAdded(metadata, STAMP), SegmentUpdated(update, STAMP)]


def copy(broker: MetadataBroker, partition: TopicIdPartition, number: int, **how: Any) -> None:
    for event in events(partition, number):
        broker.write(records.encode(event), **how)


def topic_of(broker: MetadataBroker) -> MetadataTopic:
    return MetadataTopic(Asker(broker, 5), ManualClock())


def firsts(topic: MetadataTopic, partition: TopicIdPartition) -> list[int]:
    topic.index(partition).settle(CHAIN)
    return [run.first for run in topic.index(partition).runs]


def test_only_what_is_new_is_read_again() -> None:
    broker = MetadataBroker()
    topic = topic_of(broker)
    for number in range(3):
        copy(broker, ONE, number)
    topic.read([ONE])
    assert firsts(topic, ONE) == [0, 10, 20]
    assert broker.fetched == [0, 3]
    topic.read([ONE])
    assert broker.fetched == [0, 3]
    copy(broker, ONE, 3, codec=4)
    topic.read([ONE])
    assert broker.fetched == [0, 3, 6]
    assert firsts(topic, ONE) == [0, 10, 20, 30]


def test_a_partition_that_is_wanted_later_is_read_from_the_beginning() -> None:
    broker = MetadataBroker()
    topic = topic_of(broker)
    copy(broker, ONE, 0)
    copy(broker, TWO, 1)
    topic.read([ONE])
    assert firsts(topic, TWO) == []
    topic.read([TWO])
    assert broker.fetched == [0, 3, 0, 3]
    assert firsts(topic, TWO) == [10]
    assert firsts(topic, ONE) == [0]


def test_a_partition_that_was_said_to_come_later_is_not_read_again() -> None:
    broker = MetadataBroker()
    topic = topic_of(broker)
    copy(broker, ONE, 0)
    copy(broker, TWO, 1)
    topic.read([ONE], later=[TWO])
    topic.read([TWO])
    assert broker.fetched == [0, 3]
    assert [firsts(topic, ONE), firsts(topic, TWO)] == [[0], [10]]


def test_records_that_nobody_asked_for_are_passed_over_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, read = MetadataBroker(), list[bytes | None]()
    for number in range(20):
        copy(broker, ONE, number)
        copy(broker, TWO, number)
    topic, decode = topic_of(broker), records.decode

    def counted(value: bytes | None) -> MetadataEvent:
        read.append(value)
        return decode(value)

    monkeypatch.setattr(records, "decode", counted)
    topic.read([ONE])
    assert firsts(topic, ONE) == list(range(0, 200, 10))
    assert 40 <= len(read) <= 42  # the first of another partition shows how its records begin


def test_each_fetch_has_a_deadline_of_its_own() -> None:
    """A long topic may take longer than one: a broker that restarts then is no end."""
    broker = MetadataBroker()
    for number in range(6):
        copy(broker, ONE, number)
    topic = topic_of(broker)
    asker, begun, fetches = topic._asker, list[int](), list[int]()
    again = asker.again

    def counted(call: Any, deadline_s: float | None = None) -> Any:
        if not asker._is_asking:
            begun.append(len(broker.fetched))
        try:
            return again(call, deadline_s)
        finally:
            if not asker._is_asking:
                fetches.append(len(broker.fetched) - begun.pop())

    asker.again = counted  # type: ignore[method-assign] # counts, and does it
    topic.read([ONE])
    assert len(broker.fetched) == 4
    assert max(fetches) <= 2  # the next one is on its way while an answer is validated


def test_a_fetch_that_fails_while_the_last_answer_is_read_is_repeated() -> None:
    broker = MetadataBroker()
    for number in range(6):
        copy(broker, ONE, number)
    topic = topic_of(broker)
    real, failed = broker.fetch, list[int]()

    def fetch(answer: Any, body: Any) -> Any:
        (asked,) = body.topics[0].partitions
        if asked.fetch_offset == 3 and not failed:
            failed.append(threading.get_ident())
            raise UnreachableError("one:1: connection reset")
        return real(answer, body)

    broker.fetch = fetch  # type: ignore[method-assign] # fails once
    topic.read([ONE])
    topic.close()
    assert firsts(topic, ONE) == list(range(0, 60, 10))
    assert broker.fetched == [0, 3, 6, 9]
    assert failed[0] != threading.get_ident()  # it was the one asked ahead


def test_a_log_that_was_cut_is_read_anew() -> None:
    broker = MetadataBroker()
    topic = topic_of(broker)
    copy(broker, ONE, 0)
    copy(broker, ONE, 1)
    topic.read([ONE])
    del broker.batches[2:]
    broker.end, broker.epoch = 2, 2
    copy(broker, ONE, 2)
    copy(broker, ONE, 3)
    topic.read([ONE])
    assert firsts(topic, ONE) == [0, 20, 30]


def test_a_log_that_begins_later_is_read_from_there() -> None:
    broker = MetadataBroker(log_start=100)
    topic = topic_of(broker)
    copy(broker, ONE, 0)
    topic.read([ONE])
    assert firsts(topic, ONE) == [0]


def test_records_that_mean_nothing_are_counted_and_passed_over() -> None:
    broker = MetadataBroker()
    topic = topic_of(broker)
    copy(broker, ONE, 0)
    broker.write(b"", b"\x07\x07\x07", key=b"k")
    copy(broker, ONE, 1)
    topic.read([ONE])
    assert topic.skipped_count == 2
    assert firsts(topic, ONE) == [0, 10]


def test_a_damaged_batch_is_an_error_by_name() -> None:
    broker = MetadataBroker()
    copy(broker, ONE, 0)
    broker.batches[1][-1] ^= 1
    with pytest.raises(ClusterError, match=r"__remote_log_metadata-0: the batch at offset 1 is"):
        topic_of(broker).read([ONE])


def test_a_log_that_begins_within_a_batch_is_read_from_that_record_on() -> None:
    broker = MetadataBroker()
    added, finished = (records.encode(event) for event in events(ONE, 0))
    broker.write(b"\x07\x07\x07", added)
    broker.write(finished)
    broker.log_start = 1
    topic = topic_of(broker)
    topic.read([ONE])
    assert firsts(topic, ONE) == [0]
    assert topic.skipped_count == 0


def test_records_that_are_gone_before_they_were_read_are_not_passed_over() -> None:
    """What was read before may mean another thing without them: all is read again."""
    broker = MetadataBroker()
    topic = topic_of(broker)
    copy(broker, ONE, 0)
    topic.read([ONE])
    copy(broker, ONE, 1)
    copy(broker, ONE, 2)
    del broker.batches[:4]
    broker.log_start = 4
    topic.read([ONE])
    assert firsts(topic, ONE) == [20]


def test_a_log_that_ends_before_what_was_read_is_read_anew() -> None:
    broker = MetadataBroker()
    topic = topic_of(broker)
    copy(broker, ONE, 0)
    copy(broker, ONE, 1)
    topic.read([ONE])
    del broker.batches[2:]
    broker.end, broker.epoch = 2, 4
    topic.read([ONE])
    assert firsts(topic, ONE) == [0]


def test_a_log_that_is_cut_while_it_is_read_ends_the_wait() -> None:
    broker = MetadataBroker()
    copy(broker, ONE, 0)
    broker.end += 1  # the next record was given up after the leader had told its end
    topic = MetadataTopic(Asker(broker, 0.3), ManualClock())
    with pytest.raises(ClusterError, match="gives nothing at offset 2, before offset 3"):
        topic.read([ONE])


class Echo:
    """Answers with the question, and remembers who asked in which thread; `bad` is an error."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.is_free = threading.Event()
        self.is_free.set()

    def __call__(self, question: str) -> str:
        self.is_free.wait()
        self.asked.append((question, threading.current_thread() is threading.main_thread()))
        if question == "bad":
            raise ConnectionError("no answer")
        return question


def test_what_was_begun_is_not_asked_again() -> None:
    echo = Echo()
    with closing(OneAhead(echo)) as ahead:
        assert ahead.answer("one") == "one"
        ahead.begin("two")
        assert ahead.answer("two") == "two"
        assert ahead.answer("two") == "two"
    assert echo.asked == [("one", True), ("two", False), ("two", True)]


def test_another_question_waits_for_the_one_that_is_on_its_way() -> None:
    echo = Echo()
    with closing(OneAhead(echo)) as ahead:
        echo.is_free.clear()
        ahead.begin("guessed")
        freeing = threading.Timer(0.01, echo.is_free.set)
        freeing.start()
        assert ahead.answer("wanted") == "wanted"
        freeing.join()
    assert echo.asked == [("guessed", False), ("wanted", True)]


def test_an_error_comes_to_who_asks_for_the_answer_and_to_nobody_else() -> None:
    echo = Echo()
    with closing(OneAhead(echo)) as ahead:
        ahead.begin("bad")
        with pytest.raises(ConnectionError):
            ahead.answer("bad")
        ahead.begin("bad")
        assert ahead.answer("good") == "good"
        ahead.begin("bad")
        ahead.drop()
        ahead.begin("bad")
    assert [question for question, _ in echo.asked] == ["bad", "bad", "good", "bad", "bad"]
