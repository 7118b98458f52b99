"""What the tier counts of a topic is there as long as the topic is."""

from pathlib import Path

import pytest

from broker.observe.console.history import TIER_TOTALS
from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import Health
from rlm.telemetry import Telemetry
from tests.support.tier.pair import Pair

FIRST, SECOND = (TopicIdPartition(b"o" * 16, number, "orders") for number in (0, 1))
AGAIN = TopicIdPartition(b"p" * 16, 0, "orders")
OTHER = TopicIdPartition(b"x" * 16, 0, "others")


def count_all(telemetry: Telemetry, tip: TopicIdPartition) -> None:
    telemetry.copied(tip.topic, 100)
    telemetry.copy_failed(tip.topic, OSError())
    telemetry.deleted(tip.topic)
    telemetry.delete_failed(tip.topic, OSError())
    telemetry.corrupt(tip.topic)
    for kind in ("copy", "expire"):
        telemetry.passed(tip.topic, kind)
    for operation in ("copy", "fetch", "fetch_index", "delete"):
        telemetry.store_called(operation, tip.topic, 100, 5, failed=True)
    telemetry.validated(tip, 3)
    telemetry.measured(tip, copy_lag_bytes=1, delete_lag_segments=2, remote_bytes=3)


def samples(telemetry: Telemetry, topic: str) -> list[str]:
    return [
        sample.name
        for sample in telemetry.registry.samples()
        if sample.labels.get("topic") == topic
    ]


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(store="Store")


def test_all_of_a_topic_goes_with_its_last_partition(telemetry: Telemetry) -> None:
    for tip in (FIRST, SECOND, OTHER):
        telemetry.assigned(tip)
        count_all(telemetry, tip)
    before = len(samples(telemetry, "others"))
    telemetry.forget(FIRST)
    assert 'partition="1"' in telemetry.registry.render().decode()
    assert "tidemark_remote_passes_total" in samples(telemetry, "orders")
    telemetry.forget(SECOND)
    assert samples(telemetry, "orders") == []
    assert len(samples(telemetry, "others")) == before


def test_a_call_that_ends_late_brings_nothing_back(telemetry: Telemetry) -> None:
    telemetry.assigned(FIRST)
    telemetry.forget(FIRST)
    count_all(telemetry, FIRST)
    assert samples(telemetry, "orders") == []


def test_a_topic_created_again_before_the_old_one_goes_continues_counting(
    telemetry: Telemetry,
) -> None:
    telemetry.assigned(FIRST)
    telemetry.assigned(AGAIN)
    telemetry.forget(FIRST)
    telemetry.measured(FIRST, remote_bytes=7)
    assert samples(telemetry, "orders") == []
    count_all(telemetry, AGAIN)
    assert samples(telemetry, "orders")
    telemetry.forget(AGAIN)
    assert samples(telemetry, "orders") == []


def test_totals_are_of_all_topics_and_never_fall(telemetry: Telemetry) -> None:
    for tip in (FIRST, OTHER):
        telemetry.assigned(tip)
        count_all(telemetry, tip)
    before = telemetry.totals()
    assert before == {
        "remote_copy_bytes": 200,
        "remote_copy_requests": 4,
        "remote_copy_errors": 2,
    }
    telemetry.forget(FIRST)
    assert telemetry.totals() == before


def test_the_totals_come_with_the_health(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(3)
    pair.assign()
    assert pair.reasons() == []
    told = [each for each in pair.told if isinstance(each, Health)][-1]
    assert told.totals.keys() == set(TIER_TOTALS)
    assert told.totals["remote_copy_requests"] > 0 < told.totals["remote_copy_bytes"]
