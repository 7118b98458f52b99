"""What a node says of itself, and what to do about it."""

import json

from broker.observe.health import Health, by_cause
from runtime.health_reasons import HealthReason

LOST = HealthReason.DIRECTORY_OFFLINE.line(path="d", why="no")


def test_reasons_come_with_what_to_do_unless_they_say_it() -> None:
    health = Health(1)
    health.checks["logs"] = lambda: [LOST]
    health.warnings["tier"] = lambda: ["x: y. Remedy: wait"]
    report = health.report()
    assert report["reasons"] == [
        "logs: log directory d is offline: no",
        "tier: x: y. Remedy: wait",
    ]
    assert report["remedies"] == {"logs: log directory d is offline: no": LOST.remedy}
    assert "tidemark directories" in LOST.remedy


def test_a_page_that_gives_other_reasons_gives_no_remedies_of_health() -> None:
    health = Health(1)
    health.checks["logs"] = lambda: [LOST]
    assert json.loads(health.ready_page().body)["remedies"] == {}
    health.stage = "running"
    assert json.loads(health.ready_page().body)["remedies"] != {}
    health.waits_for = lambda: ["no leader of the metadata quorum is known"]
    assert json.loads(health.ready_page().body)["remedies"] == {}


def test_reasons_of_two_partitions_with_one_cause_are_one_line() -> None:
    reasons = [
        "groups: groups of __consumer_offsets-4 are not served: it could not be loaded",
        "tier: a-1: the newest offset is 3",
        "groups: groups of __consumer_offsets-11 are not served: it could not be loaded",
        "tier: a-2: the newest offset is 4",
        "followers: broker 1 cannot be followed: timed out",
        "followers: broker 2 cannot be followed: timed out",
    ]
    assert [one.text for one in by_cause(reasons)] == [
        f"{reasons[0]} (the same for 2 partitions: __consumer_offsets-4, __consumer_offsets-11)",
        *(reasons[one] for one in (1, 3, 4, 5)),
    ]
