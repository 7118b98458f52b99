"""What the active controller does by itself when it is idle, and what it counts."""

from dataclasses import replace
from typing import Any

import pytest

from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.active.no_op_timer import OBSERVER_MEMORY_MS, ms_before_no_op
from metadata_topic.quorum.active.ports import Audience
from runtime.work import Steps
from tests.support.worlds.naive_quorum import (
    PLAIN,
    NaiveQuorum,
    asking,
    creating,
    id_of,
    serving,
    topic,
)

STATS = "kafka_controller_ControllerStats_"
CONTROLLER = "kafka_controller_KafkaController_"
EVENTS = "kafka_controller_ControllerEventManager_"
LINGERS = replace(PLAIN, append_linger_ms=25)

# -- NoOp records ---------------------------------------------------------------------------------

SEEN = Audience(observer_seen_ms=1_000)


@pytest.mark.parametrize(
    ("audience", "now_ms", "interval_ms", "expected"),
    [
        (Audience(), 5_000, 500, 500),
        (Audience(has_other_voters=True), 1_100, 500, 400),
        (Audience(has_other_voters=True), 1_500, 500, 0),
        (Audience(has_other_voters=True), 1_500, 0, None),
        (SEEN, 1_000 + OBSERVER_MEMORY_MS, 500, 0),
        (SEEN, 1_001 + OBSERVER_MEMORY_MS, 500, 500),
    ],
)
def test_when_a_no_op_is_due(
    audience: Audience, now_ms: int, interval_ms: int, expected: int | None
) -> None:
    found = ms_before_no_op(audience, last_write_ms=1_000, now_ms=now_ms, interval_ms=interval_ms)
    assert found == expected


def test_an_idle_leader_writes_no_ops_where_somebody_listens() -> None:
    quorum = serving(replace(PLAIN, max_idle_interval_ms=500))
    end = quorum.log_end()
    quorum.run(3_000)
    assert quorum.log_end() == end, "nobody listens"
    quorum.audience = Audience(has_other_voters=True)
    quorum.run(3_000)
    assert quorum.log_end() in (end + 5, end + 6)
    end = quorum.log_end()
    for number in range(20):
        quorum.submit(creating(f"t{number}"))
        quorum.run(300)
    assert quorum.log_end() == end + 20, "a busy leader has no need of them"
    quorum.depose()
    end = quorum.log_end()
    quorum.run(3_000)
    assert quorum.log_end() == end


def test_no_ops_that_are_not_committed_do_not_pile_up() -> None:
    settings = replace(PLAIN, max_idle_interval_ms=500)
    quorum = serving(settings, commit_delay_ms=None)
    quorum.audience = Audience(has_other_voters=True)
    quorum.run(60_000)
    assert quorum.loop.decision_count == 1


# -- what is counted ------------------------------------------------------------------------------


def test_metrics_move_with_what_they_count() -> None:
    quorum = NaiveQuorum(LINGERS, commit_delay_ms=10)
    assert quorum.value(f"{CONTROLLER}ActiveControllerCount") == 0
    quorum.elect()
    quorum.run(50)
    assert quorum.value(f"{CONTROLLER}ActiveControllerCount") == 1
    assert quorum.value(f"{CONTROLLER}NewActiveControllersCount") == 1
    started = quorum.value(f"{CONTROLLER}EventQueueOperationsStartedCount")

    def large(_image: MetadataImage) -> Steps[ControllerResult[None]]:
        quorum.ports.clock.advance(7)
        yield
        return ControllerResult((topic("large"),), None)

    idle = quorum.value(f"{EVENTS}AvgIdleRatio")
    processing = quorum.value(f"{EVENTS}EventQueueProcessingTimeMs_sum")
    commit = quorum.value("tidemark_controller_commit_time_ms_sum")
    queue = quorum.value(f"{EVENTS}EventQueueTimeMs_sum")
    answers = [quorum.submit(large), quorum.submit(asking)]
    quorum.run(10)
    assert quorum.value(f"{CONTROLLER}EventQueueOperationsStartedCount") == started + 2
    assert quorum.value(f"{EVENTS}EventQueueProcessingTimeMs_sum") == processing + 7
    assert quorum.value(f"{EVENTS}EventQueueTimeMs_sum") == queue + 7
    assert 0 < quorum.value(f"{EVENTS}AvgIdleRatio") < idle == 1
    applied = quorum.value(f"{CONTROLLER}LastAppliedRecordOffset")
    assert applied == quorum.value(f"{CONTROLLER}LastCommittedRecordOffset") + 1
    quorum.run(50)
    assert all(answer.is_there for answer in answers)
    assert quorum.value(f"{CONTROLLER}LastCommittedRecordOffset") == applied
    assert quorum.value("tidemark_controller_commit_time_ms_sum") >= commit + 10
    assert quorum.value(f"{CONTROLLER}LastAppliedRecordLagMs") == 0
    quorum.depose()
    timestamp = quorum.value(f"{CONTROLLER}LastAppliedRecordTimestamp")
    assert quorum.value(f"{CONTROLLER}ActiveControllerCount") == 0
    assert quorum.value(f"{CONTROLLER}NewActiveControllersCount") == 2
    now = quorum.ports.clock.wall_ms()
    assert quorum.value(f"{CONTROLLER}LastAppliedRecordLagMs") == now - timestamp > 0


def test_elections_are_counted_when_they_are_committed() -> None:
    quorum = serving(commit_delay_ms=10)

    def deciding(*records: MetadataRecord) -> None:
        def decide(_image: MetadataImage) -> Steps[ControllerResult[None]]:
            quorum.ports.clock.advance(7)
            yield
            return ControllerResult(records, None)

        quorum.submit(decide)
        quorum.run(10)

    def counted() -> tuple[float, float, float]:
        found = {one.name.removeprefix(STATS): one.value for one in quorum.ports.metrics.samples()}
        count, took_ms = (
            found.get(f"LeaderElectionRateAndTimeMs_{what}", 0) for what in ("count", "sum")
        )
        return count, took_ms, found["UncleanLeaderElectionsPerSec_total"]

    of_t: dict[str, Any] = {"partition_id": 0, "topic_id": id_of("t")}
    deciding(topic("t"), make("PartitionRecord", 2, **of_t, replicas=[1, 2], isr=[1, 2], leader=1))
    quorum.run(20)
    assert counted() == (0, 0, 0)
    deciding(make("PartitionChangeRecord", 2, **of_t, leader=2, isr=[2]))
    assert counted() == (0, 0, 0), "it is not committed yet"
    quorum.run(20)
    count, took_ms, _ = counted()
    assert (count, took_ms >= 17) == (1, True)
    deciding(make("PartitionChangeRecord", 2, **of_t, leader=1, isr=[1], leader_recovery_state=1))
    quorum.run(20)
    assert (counted()[0], counted()[2]) == (2, 1)
