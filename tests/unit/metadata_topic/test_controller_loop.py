"""The active controller: when it serves, what it answers, what becomes of it when it is deposed."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS, DecisionTimedOut
from metadata_topic.quorum.log.batches import read_batches
from metadata_topic.quorum.node import MetadataUnavailable
from runtime.work import Steps
from tests.support.samples.metadata import registration_of
from tests.support.worlds.metadata_home import Home, topics
from tests.support.worlds.naive_quorum import (
    ME,
    PLAIN,
    NaiveQuorum,
    asking,
    creating,
    id_of,
    names,
    serving,
    topic,
)
from tests.support.worlds.pools import HeldPool, turns

TIMED_OUT = "kafka_controller_KafkaController_EventQueueOperationsTimedOutCount"
LINGERS = replace(PLAIN, append_linger_ms=25)

# -- when it serves -------------------------------------------------------------------------------


def test_no_request_is_served_before_the_epochs_first_record_is_applied() -> None:
    quorum = NaiveQuorum()
    assert quorum.submit(creating("a")).code == ErrorCode.NOT_CONTROLLER
    quorum.elect(commit=False)
    assert quorum.submit(creating("a")).code == ErrorCode.NOT_CONTROLLER
    quorum.commit(apply=False)
    assert quorum.submit(creating("a")).code == ErrorCode.NOT_CONTROLLER
    quorum.apply()
    answer = quorum.submit(creating("a"))
    assert not answer.is_there
    quorum.run()
    assert answer.response == "made a"


def test_a_follower_names_the_leader() -> None:
    quorum = serving()
    quorum.depose()
    answer = quorum.submit(creating("a"))
    assert answer.code == ErrorCode.NOT_CONTROLLER
    assert "node 2 leads" in str(answer.outcomes[0].error)


def test_the_first_controller_writes_the_records_that_format_left() -> None:
    quorum = serving()
    assert quorum.image.metadata_version == 30
    end = quorum.log_end()
    quorum.depose()
    quorum.elect()
    quorum.run()
    assert quorum.log_end() == end + 2, "two new epochs, and nothing else"


def test_a_controller_registers_itself_once_an_incarnation() -> None:
    settings = replace(PLAIN, registration=registration_of(ME))
    quorum = serving(settings)
    assert list(quorum.image.controllers) == [ME]
    end = quorum.log_end()
    quorum.depose()
    quorum.elect()
    quorum.run()
    assert quorum.log_end() == end + 2


def test_what_a_dead_controller_left_open_is_aborted_and_never_counts() -> None:
    quorum = serving()
    quorum.depose()
    quorum.write_elsewhere([topic("before"), make("BeginTransactionRecord"), topic("dead")])
    quorum.commit()
    assert names(quorum.image) == []
    quorum.elect()
    answer = quorum.submit(creating("a"))
    quorum.run()
    assert answer.response == "made a"
    assert names(quorum.image) == ["a", "before"]
    assert quorum.replayed(quorum.committed) == quorum.image
    records = [r.name for _, data in quorum.batches for b in read_batches(data) for r in b.records]
    assert "AbortTransactionRecord" in records


def test_bootstrap_records_of_which_half_was_written_are_written_whole() -> None:
    quorum = NaiveQuorum()
    quorum.epoch = 1
    quorum.write_elsewhere([make("BeginTransactionRecord"), *PLAIN.bootstrap])
    quorum.commit()
    quorum.elect()
    quorum.run()
    assert quorum.image.metadata_version == 30
    assert quorum.loop.is_active


def test_where_the_first_records_are_lost_a_controller_decides_nothing() -> None:
    """Neither is the half of a bootstrap transaction that it finds ended, nor anything asked."""
    quorum = NaiveQuorum(replace(PLAIN, bootstrap=(), bootstrap_problem="gone"))
    quorum.epoch = 1
    quorum.write_elsewhere([make("BeginTransactionRecord"), *PLAIN.bootstrap])
    quorum.commit()
    quorum.elect()
    answer = quorum.submit(creating("a"))
    written = len(quorum.batches)
    quorum.run(900)
    assert quorum.resignations == [], "the others catch up first"
    quorum.run(200)
    assert answer.code == ErrorCode.NOT_CONTROLLER
    assert len(quorum.batches) == written
    assert len(quorum.resignations) == 1
    assert "first records of a controller cannot be written: gone" in quorum.resignations[0]


def test_first_records_that_cannot_be_written_end_the_term() -> None:
    bad = make("TopicRecord", name="t" * 40_000, topic_id=id_of("t"))
    quorum = NaiveQuorum(replace(PLAIN, bootstrap=(bad,)))
    quorum.elect()
    quorum.run()
    assert not quorum.loop.is_active
    assert len(quorum.resignations) == 1
    assert "first records" in quorum.resignations[0]


# -- decisions in flight --------------------------------------------------------------------------


def test_decisions_overlap_and_are_answered_in_order_after_their_commit() -> None:
    quorum = serving(commit_delay_ms=None)
    heard: list[str] = []
    for name in "abc":
        quorum.loop.submit(creating(name), lambda o: heard.append(o.response))
    quorum.run()
    assert heard == []
    assert names(quorum.loop.decided_image) == ["a", "b", "c"]
    assert names(quorum.image) == []
    end = quorum.log_end()
    quorum.commit(end - 1)
    assert heard == ["made a", "made b"]
    quorum.commit()
    assert heard == ["made a", "made b", "made c"]


def test_an_answer_waits_until_readers_of_this_node_see_the_change() -> None:
    quorum = serving(commit_delay_ms=None)
    answer = quorum.submit(creating("a"))
    quorum.run()
    quorum.commit(apply=False)
    assert not answer.is_there
    quorum.apply()
    assert answer.response == "made a"


def test_an_answer_without_records_waits_for_what_it_rests_on() -> None:
    quorum = serving(commit_delay_ms=None)
    quorum.submit(creating("a"))
    asked, refused = quorum.submit(asking), quorum.submit(creating("a"))
    quorum.run()
    assert not asked.is_there
    assert not refused.is_there
    quorum.commit()
    assert asked.response == ("a",)
    assert refused.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_answer_that_rests_on_what_is_committed_comes_at_once() -> None:
    quorum = serving(commit_delay_ms=None)
    asked = quorum.submit(asking)
    quorum.run(0)
    assert asked.response == ()


@pytest.mark.parametrize("delay_ms", [0, 1, 50])
def test_a_broker_epoch_is_the_offset_of_its_record(delay_ms: int) -> None:
    from metadata_topic.controller.brokers import register_broker

    quorum = serving(LINGERS, commit_delay_ms=delay_ms)
    quorum.submit(creating("a"))
    answers = [
        quorum.submit(lambda i, n=n: register_broker.steps(i, registration_of(n))) for n in (1, 2)
    ]
    quorum.run(200)
    for broker_id, answer in zip((1, 2), answers, strict=True):
        epoch = quorum.image.brokers[broker_id].epoch
        assert answer.response == epoch
        (record,) = [
            record
            for facts, data in quorum.batches
            if facts.base_offset == epoch
            for batch in read_batches(data)
            for record in batch.records
        ]
        assert record.value.broker_id == broker_id


def test_a_large_decision_lets_others_have_the_loop_and_keeps_its_place() -> None:
    turns = 0

    def large(image: MetadataImage) -> Steps[ControllerResult[int]]:
        for _ in range(100):
            yield
        return ControllerResult((topic("large"),), len(image.topics_by_name))

    quorum = serving()

    def count() -> None:
        nonlocal turns
        turns += 1
        if "large" not in quorum.loop.decided_image.topics_by_name:
            quorum.ports.scheduler.call_later(0, count)

    first, answer, after = (quorum.submit(d) for d in (creating("a"), large, asking))
    count()
    quorum.run(0)
    assert turns >= 100
    quorum.run(5)
    assert (first.response, answer.response, after.response) == ("made a", 1, ("a", "large"))


def test_a_decision_too_large_for_a_batch_counts_as_a_whole() -> None:
    quorum = serving(replace(PLAIN, max_batch_bytes=1_000), commit_delay_ms=None)
    answer = quorum.submit(creating(*(f"topic-{number:02}" for number in range(50))))
    quorum.run(1)
    parts = [facts for facts, _ in quorum.batches if facts.base_offset >= quorum.committed]
    assert len(parts) > 3
    for facts in parts[:-1]:
        quorum.commit(facts.end_offset)
        assert not answer.is_there
        assert names(quorum.image) == []
    quorum.commit()
    assert answer.is_there
    assert len(names(quorum.image)) == 50


def test_a_decision_that_fails_leaves_nothing_behind() -> None:
    quorum = serving()

    def broken(_image: MetadataImage) -> ControllerResult[None]:
        return ControllerResult(
            (topic("ghost"), make("RemoveTopicRecord", topic_id=b"?" * 16)), None
        )

    def wrong(_image: MetadataImage) -> ControllerResult[None]:
        raise ZeroDivisionError

    end = quorum.log_end()
    answers = [quorum.submit(broken), quorum.submit(wrong), quorum.submit(creating("a"))]
    quorum.run()
    assert [answer.code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR, -1, 0]
    assert names(quorum.image) == ["a"]
    assert quorum.log_end() == end + 1


def test_an_outcome_may_be_heard_within_the_append() -> None:
    quorum = serving(commit_delay_ms=0)
    heard: list[str] = []

    def again(outcome: Any) -> None:
        heard.append(outcome.response)
        if len(heard) < 3:
            quorum.loop.submit(creating(f"t{len(heard)}"), again)

    quorum.loop.submit(creating("t"), again)
    quorum.run()
    assert heard == ["made t", "made t1", "made t2"]


def test_control_records_in_between_move_the_offset_of_the_next_decision() -> None:
    quorum = serving()
    quorum.write_control()
    answer = quorum.submit(creating("a"))
    quorum.run()
    assert answer.response == "made a"
    assert quorum.resignations == []


# -- deadlines and bounds -------------------------------------------------------------------------


def test_a_decision_in_flight_is_answered_at_its_deadline_and_continues() -> None:
    quorum = serving(commit_delay_ms=None)
    answer = quorum.submit(creating("a"), timeout_ms=100)
    quorum.run(99)
    assert not answer.is_there
    quorum.run(1)
    assert answer.code == ErrorCode.REQUEST_TIMED_OUT
    quorum.commit()
    assert names(quorum.image) == ["a"]
    assert len(answer.outcomes) == 1
    assert quorum.value(TIMED_OUT) == 0


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_who_names_no_time_waits_for_the_usual_one(timeout_ms: int) -> None:
    quorum = serving(commit_delay_ms=None)
    answer = quorum.submit(creating("a"), timeout_ms=timeout_ms)
    quorum.run(DECISION_TIMEOUT_MS - 1)
    assert not answer.is_there
    quorum.run(1)
    assert answer.code == ErrorCode.REQUEST_TIMED_OUT


def test_a_decision_that_was_not_begun_by_its_deadline_is_not_taken() -> None:
    quorum = serving(replace(PLAIN, uncommitted_bytes_max=1), commit_delay_ms=None)
    quorum.submit(creating("a"), timeout_ms=1_000)
    waits = quorum.submit(creating("b"), timeout_ms=50)
    quorum.run(50)
    assert waits.code == ErrorCode.REQUEST_TIMED_OUT
    quorum.commit()
    quorum.run()
    quorum.commit()
    assert names(quorum.image) == ["a"]
    assert quorum.value(TIMED_OUT) == 1


def test_nothing_more_is_decided_while_too_much_is_not_committed() -> None:
    quorum = serving(replace(PLAIN, uncommitted_bytes_max=1), commit_delay_ms=None)
    answers = [quorum.submit(creating(name)) for name in "ab"]
    quorum.run()
    assert names(quorum.loop.decided_image) == ["a"]
    quorum.commit()
    quorum.run()
    quorum.commit()
    assert [answer.code for answer in answers] == [0, 0]


def test_a_decision_above_the_bound_is_refused_with_a_retriable_code() -> None:
    quorum = serving(replace(PLAIN, decisions_max=3), commit_delay_ms=None)
    answers = [quorum.submit(creating(name)) for name in "abcd"]
    assert answers[3].code == ErrorCode.NOT_CONTROLLER
    assert "changes wait already" in str(answers[3].outcomes[0].error)
    quorum.run()
    assert quorum.submit(creating("e")).code == ErrorCode.NOT_CONTROLLER
    quorum.commit()
    assert quorum.loop.decision_count == 0
    assert [answer.code for answer in answers[:3]] == [0, 0, 0]


# -- the end of a term ----------------------------------------------------------------------------


def test_a_deposed_controller_says_which_changes_may_be_carried_out() -> None:
    """A broker asks the next controller after 41: what may be in the log is not done twice."""
    quorum = serving(replace(LINGERS, uncommitted_bytes_max=300), commit_delay_ms=None)

    def large(_image: MetadataImage) -> Steps[ControllerResult[None]]:
        while True:
            yield

    in_log = quorum.submit(creating("in-log"))
    quorum.run(25)
    gathered = quorum.submit(creating("gathered"))
    asked = quorum.submit(asking)
    under_way = quorum.submit(large)
    waits = quorum.submit(creating("waits"))
    quorum.ports.scheduler.call_later(0, lambda: quorum.depose(keep_until=quorum.log_end()))
    quorum.run(0)
    answers = (in_log, gathered, asked, under_way, waits)
    timed_out, elsewhere = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER
    assert [answer.code for answer in answers] == [timed_out] * 2 + [elsewhere] * 3
    assert names(quorum.loop.decided_image) == []
    quorum.run(100)
    quorum.commit()
    assert names(quorum.image) == ["in-log"]
    assert all(len(answer.outcomes) == 1 for answer in answers)
    assert quorum.resignations == []


def test_a_term_that_is_over_leaves_no_timer_behind() -> None:
    quorum = serving(replace(LINGERS, max_idle_interval_ms=100), commit_delay_ms=None)
    quorum.submit(creating("a"))
    quorum.run()
    quorum.submit(creating("b"), timeout_ms=60_000)
    quorum.run(1)
    assert len(live_timers(quorum)) == 4, "two deadlines, the linger, the next look at idleness"
    quorum.depose()
    assert live_timers(quorum) == []


def live_timers(quorum: NaiveQuorum) -> list[Any]:
    return [one for *_, one in quorum.ports.scheduler._queue if not one.cancelled]


def test_a_new_term_begins_with_the_committed_image() -> None:
    quorum = serving(commit_delay_ms=None)
    lost = quorum.submit(creating("a"))
    quorum.run()
    quorum.depose()
    quorum.commit()
    quorum.elect()
    again = quorum.submit(creating("a"))
    quorum.run()
    quorum.commit()
    assert lost.code == ErrorCode.REQUEST_TIMED_OUT
    assert again.response == "made a"


def test_a_new_epoch_of_the_same_leader_is_a_new_term() -> None:
    quorum = serving(commit_delay_ms=None)
    answer = quorum.submit(creating("a"))
    quorum.run()
    quorum.elect(commit=False)
    assert answer.code == ErrorCode.REQUEST_TIMED_OUT
    assert not quorum.loop.is_active
    quorum.commit()
    assert quorum.loop.is_active
    assert names(quorum.loop.decided_image) == ["a"]


@pytest.mark.parametrize("how", ["fault", "refusal"])
def test_a_failed_append_ends_the_leadership_and_acknowledges_nothing(how: str) -> None:
    quorum = serving(LINGERS)
    answers = [quorum.submit(creating(name)) for name in "ab"]
    if how == "fault":
        quorum.fault = OSError(5, "half is written")
    else:
        quorum.refuses = True
    quorum.run(25)
    assert [answer.code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert len(quorum.resignations) == 1
    quorum.commit()
    quorum.run()
    assert quorum.submit(creating("c")).code == ErrorCode.NOT_CONTROLLER, "not in this epoch again"
    quorum.refuses = False
    quorum.elect()
    assert quorum.loop.is_active


def test_an_image_that_a_decision_broke_ends_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    from metadata_topic.image.loader import ImageLoader

    quorum = serving(commit_delay_ms=None)
    before = quorum.submit(creating("a"))
    quorum.run()

    def take(_self: ImageLoader) -> None:
        raise AssertionError("a map is broken")

    broken = quorum.submit(creating("b"))
    monkeypatch.setattr(ImageLoader, "take", take)
    quorum.run()
    monkeypatch.undo()
    assert [before.code, broken.code] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]
    assert "a map is broken" in quorum.resignations[0]


def test_a_process_that_ends_answers_all_who_wait() -> None:
    quorum = serving(commit_delay_ms=None)
    answer = quorum.submit(creating("a"))
    quorum.run()
    quorum.loop.close()
    quorum.loop.close()
    assert answer.code == ErrorCode.REQUEST_TIMED_OUT
    quorum.elect()
    assert not quorum.loop.is_active


def test_watchers_hear_of_the_begin_and_the_end_of_a_term() -> None:
    class Watcher:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def on_active(self, image: MetadataImage) -> None:
            self.heard.append(f"active {image.provenance.end_offset}")

        def on_inactive(self) -> None:
            self.heard.append("inactive")

    quorum, watcher = NaiveQuorum(), Watcher()
    quorum.loop.watch(watcher)
    quorum.elect()
    quorum.depose()
    assert watcher.heard == ["active 1", "inactive"]


class Hung:
    """A node whose disk hangs as soon as it is ready."""

    def __init__(self, home: Home) -> None:
        self.pool = HeldPool(is_holding=False)
        self.scheduler = home.ports.scheduler
        self.node = home.node(pool=self.pool)

    async def ready(self) -> "Hung":
        await self.node.begin()
        self.pool.is_holding = True
        return self

    async def begin(self, name: str, timeout_ms: int = 0) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(self.node.submit(topics(name), timeout_ms=timeout_ms))
        await turns()
        return task

    def heal(self) -> None:
        self.pool.stop_holding()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_a_caller_times_out_on_a_hung_disk_and_the_decision_is_still_made(
    home: Home,
) -> None:
    hung = await Hung(home).ready()
    asked = await hung.begin("a", timeout_ms=500)
    assert hung.pool.held == 1
    hung.scheduler.advance(499)
    await turns()
    assert not asked.done()
    hung.scheduler.advance(1)
    with pytest.raises(DecisionTimedOut) as caught:
        await asked
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    hung.heal()
    await turns()
    assert set(hung.node.image.topics_by_name) == {"a"}
    await hung.node.close()
    assert set((await home.lived()).image.topics_by_name) == {"a"}


async def test_what_waits_for_its_turn_until_its_time_is_over_is_not_taken(
    home: Home,
) -> None:
    hung = await Hung(home).ready()
    asked = [asyncio.ensure_future(hung.node.submit(topics("a"), timeout_ms=500))]
    await turns(2)
    assert hung.node._replica.controller.decision_count == 1
    # It is asked for, and not taken yet when the clock moves: the loop was busy for so long.
    hung.scheduler.advance(500)
    with pytest.raises(DecisionTimedOut, match="not carried out"):
        await asked[0]
    hung.heal()
    await hung.node.submit(topics("b"))
    await hung.node.close()
    assert set((await home.lived()).image.topics_by_name) == {"b"}


async def test_a_caller_that_does_not_say_waits_half_a_minute(home: Home) -> None:
    hung = await Hung(home).ready()
    asked = await hung.begin("a", timeout_ms=-1)
    hung.scheduler.advance(29_999)
    await turns()
    assert not asked.done()
    hung.scheduler.advance(1)
    with pytest.raises(DecisionTimedOut, match="not committed in time"):
        await asked


async def test_a_stop_does_not_wait_for_a_hanging_disk_for_ever(home: Home) -> None:
    hung = await Hung(home).ready()
    asked = await hung.begin("a", timeout_ms=60_000)
    closing = asyncio.ensure_future(hung.node.close())
    await turns()
    assert not closing.done()
    hung.scheduler.advance(30_000)
    with pytest.raises(MetadataUnavailable, match="did not stop in time"):
        await closing
    assert isinstance(hung.node.failure, DecisionTimedOut)
    with pytest.raises(DecisionTimedOut, match="may be carried out or not"):
        await asked


async def test_a_stop_whose_own_flush_hangs_ends_too(home: Home) -> None:
    hung = await Hung(home).ready()
    closing = asyncio.ensure_future(hung.node.close())
    await turns()
    assert not closing.done()
    hung.scheduler.advance(30_000)
    with pytest.raises(MetadataUnavailable, match="did not stop in time"):
        await closing
