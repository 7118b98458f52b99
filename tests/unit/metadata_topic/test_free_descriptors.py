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
