"""A stream between two micro-batches: where it starts, ends, waits, and what it calls a loss."""

from collections.abc import Iterable

import pytest

from kafka_protocol.types import TopicPartition
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.errors import DataLossError
from pipeline.spark.driver_log import LoggedTexts
from pipeline.spark.options import stream_options
from pipeline.spark.stream import Stream
from pipeline.values import OffsetRange, PlanFacts
from tests.support.source.said_log import SaidLog

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Told:
    """A stream on a said log, with a clock that the test moves."""

    def __init__(self, log: SaidLog, **options: str) -> None:
        self.now_ms = 1_000_000.0
        self.log = log
        self.stream = Stream(
            stream_options(
                {"kafka.bootstrap.servers": "localhost:1", "subscribePattern": "a|b", **options}
            ),
            lambda _: log,
            lambda: self.now_ms,
        )

    def again(self, **options: str) -> "Told":
        """The same query in another process."""
        return Told(self.log, **options)


def a_log() -> SaidLog:
    return SaidLog({A0: (0, 100), A1: (0, 300)})


def test_a_stream_from_the_earliest_offsets_takes_what_is_there() -> None:
    told = Told(a_log(), startingOffsets="earliest")
    start = told.stream.initial()
    assert start == {A0: 0, A1: 0}
    end = told.stream.latest(start, limited=True)
    assert end == {A0: 100, A1: 300}
    assert told.stream.plan(start, end) is not None
    assert told.log.planned == {A0: OffsetRange(0, 100), A1: OffsetRange(0, 300)}


def test_the_first_batch_from_latest_is_empty_and_keeps_the_start() -> None:
    told = Told(a_log())
    start = told.stream.initial()
    told.log.held[A0] = (0, 110)
    assert told.stream.initial() == start
    assert told.stream.latest(start, limited=True) == start == {A0: 100, A1: 300}
    assert told.stream.plan(start, start) is None
    assert told.stream.latest(start, limited=True) == {A0: 110, A1: 300}


@pytest.mark.parametrize("shown", [True, False])
def test_a_first_batch_that_was_killed_starts_where_it_did(shown: bool) -> None:
    told = Told(a_log())
    end = told.stream.latest(told.stream.initial(), limited=True)
    told.log.held[A0] = (0, 110)
    back = told.again()
    if shown:  # some versions of Spark show a stream the last offsets of its checkpoint
        assert back.stream.plan(end, end) is None
    assert back.stream.plan(back.stream.initial(), end) is None
    assert back.stream.latest(end, limited=True) == {A0: 110, A1: 300}


def test_a_killed_first_batch_reads_partitions_with_a_named_start_again() -> None:
    options = {"startingOffsets": '{"a":{"0":40,"1":-1}}'}
    told = Told(a_log(), **options)
    start = told.stream.initial()
    told.log.held[A1] = (0, 310)
    end = told.stream.latest(start, limited=True)
    assert end == {A0: 100, A1: 300}
    told.log.held |= {A0: (0, 120), A1: (0, 320)}
    back = told.again(**options)
    back.stream.plan(back.stream.initial(), end)
    assert told.log.planned == {A0: OffsetRange(40, 100)}


@pytest.mark.parametrize("start_at", ["earliest", "latest"])
@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("shown", [True, False])
def test_after_a_killed_first_batch_new_partitions_come_in_the_next(
    start_at: str, limited: bool, shown: bool
) -> None:
    told = Told(a_log(), startingOffsets=start_at)
    start = told.stream.initial()
    end = told.stream.latest(start if limited else None, limited=limited)
    told.log.held |= {A0: (0, 120), B0: (0, 7)}
    back = told.again(startingOffsets=start_at)
    if shown:
        assert back.stream.plan(end, end) is None
    planned = back.stream.plan(back.stream.initial(), end)
    if start_at == "latest":
        assert planned is None
    else:
        assert told.log.planned == {A0: OffsetRange(0, 100), A1: OffsetRange(0, 300)}
    next_end = back.stream.latest(end if limited else None, limited=limited)
    assert next_end == {A0: 120, A1: 300, B0: 7}
    back.stream.plan(end, next_end)
    assert told.log.planned == {A0: OffsetRange(100, 120), B0: OffsetRange(0, 7)}


def test_a_killed_first_batch_still_names_a_partition_that_is_gone() -> None:
    told = Told(a_log(), startingOffsets="earliest")
    end = told.stream.latest(told.stream.initial(), limited=True)
    del told.log.held[A1]
    back = told.again(startingOffsets="earliest")
    with pytest.raises(DataLossError, match="a-1 is gone"):
        back.stream.plan(back.stream.initial(), end)


def test_before_42_the_first_end_is_the_start() -> None:
    told = Told(a_log())
    end = told.stream.latest(None, limited=False)
    told.log.held[A0] = (0, 110)
    assert told.stream.initial() == end
    assert told.stream.latest(None, limited=False) == {A0: 110, A1: 300}


def test_available_now_ends_at_what_was_there() -> None:
    told = Told(a_log(), startingOffsets="earliest", maxOffsetsPerTrigger="200")
    told.stream.stop_at_what_is_there()
    told.log.held[A0] = (0, 999)
    at, batches = told.stream.initial(), 0
    while (end := told.stream.latest(at, limited=True)) != at:
        at, batches = end, batches + 1
    assert at == {A0: 100, A1: 300}
    assert batches == 2


def test_available_now_from_the_latest_offsets_reads_nothing() -> None:
    told = Told(a_log())
    told.stream.stop_at_what_is_there()
    told.log.held[A0] = (0, 999)
    start = told.stream.initial()
    assert start == {A0: 100, A1: 300}
    assert told.stream.latest(start, limited=True) == start
    assert told.stream.latest(start, limited=True) == start


def test_available_now_does_not_wait_for_a_least_size() -> None:
    told = Told(a_log(), startingOffsets="earliest", minOffsetsPerTrigger="1000")
    told.stream.stop_at_what_is_there()
    start = told.stream.initial()
    end = told.stream.latest(start, limited=True)
    assert end == {A0: 100, A1: 300}
    assert told.stream.latest(end, limited=True) == end


def test_available_now_takes_a_rest_that_is_below_the_least_size() -> None:
    options = {"minOffsetsPerTrigger": "250", "maxOffsetsPerTrigger": "300"}
    told = Told(a_log(), startingOffsets="earliest", **options)
    told.stream.stop_at_what_is_there()
    end = told.stream.latest(told.stream.initial(), limited=True)
    assert end == {A0: 75, A1: 225}
    assert told.stream.latest(end, limited=True) == {A0: 100, A1: 300}


def test_the_most_offsets_are_shared_by_backlog() -> None:
    told = Told(a_log(), startingOffsets="earliest", maxOffsetsPerTrigger="100")
    start = told.stream.initial()
    assert told.stream.latest(start, limited=True) == {A0: 25, A1: 75}
    assert told.stream.latest(start, limited=False) == {A0: 100, A1: 300}
    assert told.stream.latest_seen() == {A0: 100, A1: 300}


def test_a_small_backlog_waits_until_it_is_old() -> None:
    told = Told(
        a_log(), startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1m"
    )
    start = told.stream.initial()
    end = told.stream.latest(start, limited=True)
    assert end == {A0: 100, A1: 300}
    told.log.held[A0] = (0, 149)
    assert told.stream.latest(end, limited=True) == end
    told.now_ms += 60_000
    assert told.stream.latest(end, limited=True) == {A0: 149, A1: 300}
    told.log.held[A0] = (0, 199)
    assert told.stream.latest({A0: 149, A1: 300}, limited=True) == {A0: 199, A1: 300}


def test_a_new_partition_starts_at_its_earliest_offset() -> None:
    told = Told(a_log(), startingOffsets="latest", maxOffsetsPerTrigger="10")
    start = {A0: 100, A1: 300}
    told.log.held[B0] = (0, 40)
    end = told.stream.latest(start, limited=True)
    assert end == {A0: 100, A1: 300, B0: 10}
    told.stream.plan(start, end)
    assert told.log.planned == {B0: OffsetRange(0, 10)}


@pytest.mark.parametrize(
    ("held", "start", "end", "said"),
    [
        ({A0: (0, 9)}, {A0: 5, A1: 7}, {A0: 9}, "a-1 is gone"),
        ({A0: (0, 9)}, {A0: 5}, {A0: 9, B0: 4}, "b-0 is gone"),
        ({A0: (0, 3)}, {A0: 5}, {A0: 3}, "a-0 went back from offset 5 to 3"),
        ({A0: (2, 9)}, {}, {A0: 9}, "new partition a-0 starts at offset 2 instead of 0"),
    ],
)
def test_what_is_lost_is_an_error_or_a_warning(
    held: dict[TopicPartition, tuple[int, int]],
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(DataLossError, match=f"{said}.*failOnDataLoss=false"):
        Told(SaidLog(dict(held))).stream.plan(start, end)
    with caplog.at_level("WARNING", "pipeline.spark"):
        Told(SaidLog(dict(held)), failOnDataLoss="false").stream.plan(start, end)
    assert said in caplog.text


def test_a_topic_that_was_deleted_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a,b"}
    with pytest.raises(DataLossError, match="b is gone, or was never there"):
        Stream(stream_options(options), lambda _: a_log(), lambda: 0.0).latest({}, limited=True)
    options["failOnDataLoss"] = "false"
    with caplog.at_level("WARNING", "pipeline.spark"):
        stream = Stream(stream_options(options), lambda _: a_log(), lambda: 0.0)
        assert stream.latest({}, limited=True) == {A0: 100, A1: 300}
    assert "b is gone" in caplog.text


class Vanishing(SaidLog):
    """Topic `b` is deleted while its end is asked for."""

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if self.held.pop(B0, None) and B0 in wanted:
            raise UnknownTopicError("there is no topic 'b'")
        return super().latest(wanted)


def test_a_topic_that_vanishes_between_two_questions_is_a_loss() -> None:
    told = Told(Vanishing({A0: (0, 100), B0: (0, 5)}))
    start = {A0: 100, B0: 5}
    end = told.stream.latest(start, limited=True)
    assert end == {A0: 100}
    with pytest.raises(DataLossError, match="b-0 is gone"):
        told.stream.plan(start, end)


def test_a_micro_batch_costs_one_question_for_topics_and_one_for_ends() -> None:
    log = a_log()
    stream = Stream(
        stream_options({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}),
        lambda _: log,
        lambda: 0.0,
    )
    start = {A0: 0, A1: 0}
    stream.plan(start, start)
    assert not log.asked
    stream.plan(start, stream.latest(start, limited=True))
    assert log.asked == {"partitions": 1, "latest": 1, "plan": 1}


def test_what_each_plan_says_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    told = Told(a_log(), startingOffsets="earliest", failOnDataLoss="false")
    told.log.facts = PlanFacts(notes=("a note",), warnings=("a warning",))
    with caplog.at_level("INFO", "pipeline.spark"):
        for end in (100, 200, 300):
            assert told.stream.plan({A0: 0, A1: 0}, {A0: end, A1: 300}) is not None
        told.log.facts = PlanFacts(warnings=("a warning", "another one"))
        told.stream.plan({A0: 0}, {A0: 400})
    said = [one.getMessage() for one in caplog.records if "tasks=" not in one.getMessage()]
    assert said == ["stream: a note", "stream: a warning", "stream: another one"]


def test_a_partition_that_is_gone_is_logged_once_a_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told(a_log(), startingOffsets="earliest", failOnDataLoss="false")
    with caplog.at_level("WARNING", "pipeline.spark"):
        for _ in range(3):
            told.stream.plan({A0: 0, B0: 5}, {A0: 10})
    assert caplog.text.count("b-0") == 1


def test_texts_that_always_differ_do_not_pile_up() -> None:
    texts = LoggedTexts()
    assert all(texts.is_new(str(number)) for number in range(3_000))
    assert len(texts._texts) == 1_000
    assert not texts.is_new("2999")
