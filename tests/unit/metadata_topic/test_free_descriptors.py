"""What brokers report of their descriptors, less what was placed since, and one decision's part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.free_descriptors import (
    NOT_REPORTED,
    DescriptorBudget,
    FreeDescriptors,
)
from tests.support.worlds.controlled_brokers import SESSION_MS, clustered
from tests.support.worlds.naive_quorum import PLAIN

EVENTS = st.lists(
    st.tuples(st.booleans(), st.integers(-1, 9), st.integers(-1, 12)).map(
        lambda one: one if one[0] else (False, max(one[1], 0), one[2])
    ),
    max_size=12,
)


@given(events=EVENTS)
def test_what_is_left_is_the_newest_report_less_what_was_placed_after_it(
    events: list[tuple[bool, int, int]],
) -> None:
    """Reports may overtake each other; replicas are placed at ever higher offsets."""
    free, placed_at, placed = FreeDescriptors(), 0, list[tuple[int, int]]()
    reported, covered = NOT_REPORTED, -1
    for is_report, count, offset in events:
        if is_report:
            free.report(count, offset)
            if offset >= covered:
                reported, covered = count, offset
        else:
            placed_at += 1
            free.place(count, placed_at)
            placed.append((placed_at, count))
        after = sum(count for at, count in placed if at > covered)
        naive = None if reported == NOT_REPORTED else max(0, reported - after)
        assert free.left == naive


def test_a_topic_takes_from_all_its_brokers_or_from_none() -> None:
    budget = DescriptorBudget({1: 3, 2: 2})
    budget.take([(1, 2), (3, 1)])
    assert budget.taken == {1: 2, 2: 1, 3: 1}
    with pytest.raises(KafkaError, match=r"Broker 1 has 1 .* needs 2 there.*ulimit -n") as refused:
        budget.take([(2, 1), (3, 1)])
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert budget.taken == {1: 2, 2: 1, 3: 1}
    budget.take([(2, 1)])
    budget.take([(3,)] * 100)
    with pytest.raises(KafkaError, match="Broker 2 has 0"):
        budget.take([(2,)])


def test_what_a_broker_reports_ends_with_its_session_and_with_the_term() -> None:
    cluster = clustered(PLAIN)
    control = cluster.control
    cluster.start(1, 2)
    cluster.beat(1, free_descriptors=5)
    control.replicas_placed({1: 2, 2: 9}, cluster.quorum.log_end() + 2)
    assert control.free_descriptors() == {1: 3}, "broker 2 reports none"
    cluster.quorum.run(SESSION_MS)
    assert control.free_descriptors() == {}
    cluster.beat(1, free_descriptors=5)
    cluster.beat(2, free_descriptors=0)
    assert control.free_descriptors() == {1: 5, 2: 0}
    cluster.quorum.depose()
    assert control.free_descriptors() == {}
    cluster.quorum.elect()
    assert control.free_descriptors() == {}


def test_the_broker_of_this_process_reports_for_its_own_life_alone() -> None:
    cluster = clustered(PLAIN, own_broker_id=1)
    control, epoch = cluster.control, cluster.register(1).response
    control.report_descriptors(1, epoch - 1, 4, 0)
    control.report_descriptors(2, epoch, 4, 0)
    assert control.free_descriptors() == {}
    control.report_descriptors(1, epoch, 4, 0)
    assert control.free_descriptors() == {1: 4}
    cluster.quorum.run(2 * SESSION_MS)
    assert control.free_descriptors() == {1: 4}, "its session never ends"
