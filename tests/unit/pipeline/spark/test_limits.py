"""How much a micro-batch takes: as Spark's Kafka source shares it out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import TopicPartition
from pipeline.spark.limits import Rates, backlog, take, waits

P = [TopicPartition("t", number) for number in range(4)]
OFFSETS = st.dictionaries(st.sampled_from(P), st.tuples(st.integers(0, 99), st.integers(0, 999)))


@pytest.mark.parametrize(
    ("most", "start", "end", "taken"),
    [
        (10, {0: 0, 1: 0}, {0: 100, 1: 300}, {0: 2, 1: 7}),
        (10, {0: 0, 1: 0}, {0: 1, 1: 10_000}, {0: 1, 1: 9}),
        (1, {0: 0, 1: 0, 2: 0}, {0: 5, 1: 5, 2: 5}, {0: 1, 1: 1, 2: 1}),
        (100, {0: 0}, {0: 7}, {0: 7}),
        (5, {0: 7}, {0: 7}, {0: 7}),
        (5, {0: 9, 1: 0}, {0: 7, 1: 100}, {0: 7, 1: 5}),
        (5, {}, {0: 7}, {0: 7}),
        ((1 << 63) - 1, {0: 3}, {0: 8}, {0: 8}),
    ],
)
def test_a_limit_is_shared_in_proportion_to_backlogs(
    most: int, start: dict[int, int], end: dict[int, int], taken: dict[int, int]
) -> None:
    found = take(most, {P[k]: v for k, v in start.items()}, {P[k]: v for k, v in end.items()})
    assert found == {P[k]: v for k, v in taken.items()}


@given(OFFSETS, st.integers(1, 2000))
def test_no_end_is_passed_and_every_backlog_moves(
    spans: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    start = {one: begin for one, (begin, _) in spans.items()}
    end = {one: begin + size for one, (begin, size) in spans.items()}
    taken = take(most, start, end)
    assert all(start[one] <= taken[one] <= end[one] for one in end)
    assert all(taken[one] > start[one] for one in end if end[one] > start[one])
    assert backlog(start, taken) <= most + len(end)


@pytest.mark.parametrize(
    ("rates", "available", "since_last_ms", "expected"),
    [
        (Rates(), 0, 0, False),
        (Rates(least=10), 9, 0, True),
        (Rates(least=10), 10, 0, False),
        (Rates(least=10), 0, math.inf, False),
        (Rates(least=10, delay_ms=50), 9, 49, True),
        (Rates(least=10, delay_ms=50), 9, 50, False),
    ],
)
def test_a_batch_waits_for_its_least_size_but_not_for_ever(
    rates: Rates, available: int, since_last_ms: float, expected: bool
) -> None:
    assert waits(rates, available, since_last_ms) is expected


def test_a_partition_that_went_back_does_not_reduce_the_backlog() -> None:
    assert backlog({P[0]: 10, P[1]: 0}, {P[0]: 5, P[1]: 7, P[2]: 90}) == 7
