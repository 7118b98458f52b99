"""One run of `tidemark consume` on a fake consumer: order of writing and marking, ends, errors."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafka_client.blocking import ClusterError
from tidemark.records import waiting
from tidemark.records.client import RecordsClient
from tidemark.records.consuming import Asked, IdleError, Reading
from tidemark.records.formats import Consumed
from tidemark.records.places import AtTime, FromEnd, Word
from tidemark.records.settings import Translated
from tidemark.records.waiting import Code

EOF = KafkaError._PARTITION_EOF
IN_VAIN_MAX = 10


class Message:
    def __init__(self, partition: int, offset: int, error: int | None = None) -> None:
        self._place, self._error = (partition, offset), error

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_000)

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return b"v"

    def headers(self) -> None:
        return None


class FakeConsumer:
    """Hands out batches of messages, then nothing; notes what is done to it, in order."""

    def __init__(self, ends: dict[int, tuple[int, int]], batches: Sequence[Sequence[Message]]):
        self.ends, self.batches = ends, list(batches)
        self.done: list[Any] = []
        self.given: list[int] | None = None
        self.refusal: int | None = None  # of a commit
        self.asked_in_vain = 0
        self.heard: list[str] = []
        self.settings: dict[str, Any] = {}
        self._on_assign: Any = None

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        found = SimpleNamespace(error=None, partitions=dict.fromkeys(self.ends))
        return SimpleNamespace(topics={"orders": found})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return self.ends[place.partition]

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> Any:
        return [TopicPartition("orders", one.partition, -1) for one in places]

    def assign(self, places: list[TopicPartition]) -> None:
        self.done.append({one.partition: one.offset for one in places})

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any) -> None:
        self._on_assign = on_assign

    def consume(self, count: int, timeout_s: float) -> Sequence[Message]:
        if self._on_assign is not None:
            self._on_assign(self, [TopicPartition("orders", one) for one in self.given or []])
            self._on_assign = None
        if self.heard:
            self.settings["error_cb"](KafkaError(KafkaError._TRANSPORT, self.heard.pop(0)))
        if self.batches:
            return self.batches.pop(0)
        self.asked_in_vain += 1
        assert self.asked_in_vain < IN_VAIN_MAX, "it waits for what never comes"
        return []

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.done.append({f"commit {one.partition}": one.offset for one in offsets})

    def commit(self, *, asynchronous: bool) -> None:
        assert not asynchronous
        self.done.append("committed")
        if self.refusal is not None:
            raise KafkaException(KafkaError(self.refusal))

    def close(self) -> None:
        self.done.append("closed")


def answers_well(topic: str, partition: int, offset: int) -> int:
    return 0


def run(
    consumer: FakeConsumer,
    asked: Asked,
    said: list[str] | None = None,
    code: Code = answers_well,
) -> int:
    def make(settings: dict[str, Any]) -> FakeConsumer:
        consumer.settings = settings
        return consumer

    client = RecordsClient(make, "127.0.0.1:9", Translated({}, 1, ()), {})

    def write(records: list[Consumed]) -> None:
        consumer.done.append([(one.partition, one.offset) for one in records])

    say = (said if said is not None else []).append
    return Reading(client, asked, write, lambda: True, say, code).run()


def test_it_ends_where_the_log_ended_when_it_began() -> None:
    batches = [[Message(0, 0), Message(0, 1)], [Message(1, 5)], [Message(0, 2), Message(0, 3)]]
    consumer = FakeConsumer({0: (0, 3), 1: (5, 6), 2: (7, 7)}, batches)
    assert run(consumer, Asked("orders", Word.EARLIEST)) == 4
    assert consumer.done == [
        {0: 0, 1: 5},
        [(0, 0), (0, 1)],
        [(1, 5)],
        [(0, 2)],
        "closed",
    ]


def test_markers_at_the_end_are_not_waited_for() -> None:
    consumer = FakeConsumer({0: (0, 3)}, [[Message(0, 0)], [Message(0, 3, EOF)]])
    assert run(consumer, Asked("orders", FromEnd(10))) == 1


def test_a_replica_behind_its_leader_is_read_up_to_the_leaders_end() -> None:
    """With client.rack a follower serves, whose log may end earlier (KIP-392)."""
    batches = [[Message(0, 0), Message(0, 1, EOF)], [Message(0, 1)], [Message(0, 2)]]
    consumer = FakeConsumer({0: (0, 3)}, batches)
    assert run(consumer, Asked("orders", Word.EARLIEST)) == 3


def test_an_end_that_the_leader_has_lost_is_not_waited_for() -> None:
    consumer = FakeConsumer({0: (0, 3)}, [[Message(0, 0)], [Message(0, 1, EOF)]])
    ends = iter([(0, 3), (0, 1)])
    consumer.get_watermark_offsets = lambda place, timeout: next(ends)  # type: ignore[method-assign]
    assert run(consumer, Asked("orders", Word.EARLIEST)) == 1


def test_nothing_behind_the_end_is_nothing_to_wait_for() -> None:
    for place in (Word.LATEST, 3, AtTime(1)):
        consumer = FakeConsumer({0: (0, 3)}, [])
        assert run(consumer, Asked("orders", place)) == 0
        assert consumer.done == [{}, "closed"]


def test_what_follows_is_waited_for_and_the_end_of_the_log_is_no_end() -> None:
    batches = [[Message(0, 3, EOF)], [], [Message(0, 3)], [Message(0, 4)], [Message(0, 5)]]
    consumer = FakeConsumer({0: (0, 3)}, batches)
    asked = Asked("orders", Word.LATEST, count_max=2, is_endless=True)
    assert run(consumer, asked) == 2
    assert consumer.done == [{0: 3}, [(0, 3)], [(0, 4)], "closed"]


def test_a_group_commits_after_writing_and_what_was_written_alone() -> None:
    batches = [[Message(0, 4), Message(1, 0), Message(0, 5), Message(0, 6)]]
    consumer = FakeConsumer({0: (0, 9), 1: (0, 9)}, batches)
    consumer.given = [0, 1]
    assert run(consumer, Asked("orders", Word.EARLIEST, count_max=3, group="g")) == 3
    assert consumer.done == [
        [(0, 4), (1, 0), (0, 5)],
        {"commit 0": 6, "commit 1": 1},
        "committed",
        "closed",
    ]


@pytest.mark.parametrize("code", [KafkaError.ILLEGAL_GENERATION, KafkaError._NO_OFFSET])
def test_a_commit_that_fails_at_the_end_is_told(code: int) -> None:
    consumer = FakeConsumer({0: (0, 9)}, [[Message(0, 4)]])
    consumer.given, consumer.refusal = [0], code
    asked = Asked("orders", Word.EARLIEST, count_max=1, group="g")
    if code == KafkaError._NO_OFFSET:  # all of it was committed on the way
        assert run(consumer, asked) == 1
        return
    with pytest.raises(ClusterError, match="was not committed, and comes again"):
        run(consumer, asked)
    assert consumer.done[-1] == "closed"


def test_without_a_group_nothing_is_committed() -> None:
    consumer = FakeConsumer({0: (0, 1)}, [[Message(0, 0)]])
    run(consumer, Asked("orders", Word.EARLIEST))
    assert consumer.done == [{0: 0}, [(0, 0)], "closed"]


def test_a_member_without_partitions_ends_and_says_why() -> None:
    consumer, said = FakeConsumer({0: (0, 9)}, []), list[str]()
    consumer.given = []
    assert run(consumer, Asked("orders", Word.EARLIEST, group="g"), said) == 0
    assert said == ["other members of group g have all partitions"]


def test_an_offset_is_read_where_it_is_held_and_the_others_are_named() -> None:
    consumer, said = FakeConsumer({0: (0, 9), 1: (0, 3)}, [[Message(0, 8)]]), list[str]()
    assert run(consumer, Asked("orders", 8), said) == 1
    assert consumer.done[0] == {0: 8}
    assert said == ["excluded, for it is out of range: orders-1 holds 0 to 2"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KafkaError._AUTO_OFFSET_RESET, "orders-0: the offset to read next is out of range"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "orders-0 at 127.0.0.1:9: "),
    ],
)
def test_an_error_of_a_partition_ends_it_with_one_line(code: int, words: str) -> None:
    consumer = FakeConsumer({0: (0, 3)}, [[Message(0, 0)], [Message(0, 1, code)]])
    with pytest.raises(ClusterError, match=words):
        run(consumer, Asked("orders", Word.EARLIEST))
    assert consumer.done[-1] == "closed"


def test_an_unknown_place_is_told_what_is_held() -> None:
    consumer = FakeConsumer({0: (2, 3)}, [])
    said = "offset 7 is out of range: orders-0 holds 2 to 2; asked at 127.0.0.1:9"
    with pytest.raises(ClusterError, match=said):
        run(consumer, Asked("orders", 7))


def test_idle_time_ends_a_wait_for_records_and_is_an_error_if_any_are_left() -> None:
    consumer = FakeConsumer({0: (0, 3)}, [])
    asked = Asked("orders", Word.LATEST, is_endless=True, idle_s_max=0.0)
    assert run(consumer, asked) == 0
    with pytest.raises(IdleError, match=r"no record of orders came from .* within 0 s"):
        run(FakeConsumer({0: (0, 3)}, []), Asked("orders", Word.EARLIEST, idle_s_max=0.0))


def test_a_transient_error_of_a_partition_is_told_and_waited_for() -> None:
    batches = [[Message(0, 0, KafkaError.LEADER_NOT_AVAILABLE)], [Message(0, 0)]]
    consumer, said = FakeConsumer({0: (0, 1)}, batches), list[str]()
    assert run(consumer, Asked("orders", Word.EARLIEST), said) == 1
    assert said == ["orders at 127.0.0.1:9: Broker: Leader not available; trying again"]


def test_a_lost_connection_is_told_once_and_one_that_rested_is_not() -> None:
    refused = "h:1/1: Connect to ipv4#h:1 failed: Connection refused (after 0ms in state CONNECT)"
    consumer, said = FakeConsumer({0: (0, 1)}, [[], [], [], [Message(0, 0)]]), list[str]()
    consumer.heard = ["h:1/1: Disconnected (after 600000ms in state UP)", refused, refused]
    assert run(consumer, Asked("orders", Word.EARLIEST), said) == 1
    assert said == ["127.0.0.1:9: Connect to ipv4#h:1 failed: Connection refused; trying again"]


def test_it_asks_for_the_record_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.0)
    asked, said = list[tuple[str, int, int]](), list[str]()

    def code(topic: str, partition: int, offset: int) -> int:
        asked.append((topic, partition, offset))
        return 56

    batches = [[Message(0, 4), Message(1, 3, EOF)], [], [Message(0, 5), Message(0, 6)]]
    consumer = FakeConsumer({0: (4, 7), 1: (2, 3)}, batches)
    assert run(consumer, Asked("orders", Word.EARLIEST), said, code) == 3
    assert asked == [("orders", 0, 5)], "not where the log ends"
    assert said == [
        "orders-0: its leader answers for offset 5 with code 56 (KAFKA_STORAGE_ERROR); trying"
        " again, `tidemark status` may say why"
    ]


def test_at_the_end_of_the_log_a_silence_needs_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.0)
    said = list[str]()
    consumer = FakeConsumer({0: (0, 3)}, [[Message(0, 3, EOF)], [], [Message(0, 3)]])
    asked = Asked("orders", Word.LATEST, count_max=1, is_endless=True)
    assert run(consumer, asked, said, lambda *_: 56) == 1
    assert said == []


def test_a_silence_is_explained_once_a_minute_and_anew_after_a_sign() -> None:
    codes, said = [0, 0, 56, 56, 56], list[str]()
    one = waiting.Waiting(lambda *_: codes.pop(0), said.append)
    told_at = []
    for second in range(80):
        before = len(said)
        one.silent("orders", {0: 7}, float(second))
        told_at += [second] * (len(said) - before)
    assert told_at == [15, 75], "asked at 5 and 10 it answered well"
    one.came()
    one.silent("orders", {0: 9}, waiting.SILENT_S - 1)
    assert len(said) == 2
    one.silent("orders", {0: 9}, waiting.SILENT_S)
    assert "offset 9" in said[2]


def test_a_cluster_that_does_not_answer_the_question_is_no_news() -> None:
    said = list[str]()

    def unreachable(*_: object) -> int:
        raise ClusterError("no broker")

    waiting.Waiting(unreachable, said.append).silent("orders", {0: 7}, 99)
    assert said == []
