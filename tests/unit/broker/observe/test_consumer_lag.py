"""How far groups are behind, as metrics: the greatest lags, however many offsets are committed."""

import time

import pytest

from broker.observe.console.facts import CommittedFacts
from broker.observe.consumer_lag import FRESH_MS, SHOWN_MAX, ConsumerLag, look
from runtime.metrics import Registry
from runtime.work import at_once
from tests.support.console.source import ListedSource, log_of
from tests.support.sim.clock import ManualClock

NAME = "tidemark_consumergroup_lag"
TURN_MS = 20


def values(metrics: Registry, suffix: str = "") -> dict[tuple[str, ...], float]:
    found = [one for one in metrics.samples() if one.name == NAME + suffix]
    return {tuple(one.labels.values()): one.value for one in found}


def test_lag_is_shown_by_partition_and_in_sum_by_group() -> None:
    source = ListedSource(
        all_partitions=[log_of("t", 0, end=100), log_of("t", 1, end=50)],
        offsets=[
            CommittedFacts("near", "t", 0, 99),
            CommittedFacts("far", "t", 0, 30),
            CommittedFacts("far", "t", 1, 20),
            CommittedFacts("far", "elsewhere", 0, 20),
            CommittedFacts("ahead", "t", 1, 60),
        ],
    )
    metrics = Registry()
    ConsumerLag(source, ManualClock()).register(metrics)
    assert values(metrics) == {
        ("near", "t", "0"): 1,
        ("far", "t", "0"): 70,
        ("far", "t", "1"): 30,
        ("ahead", "t", "1"): 0,
    }
    assert values(metrics, "_sum") == {("near",): 1, ("far",): 100, ("ahead",): 0}
    assert values(metrics, "_left_out") == {("partitions",): 0, ("groups",): 0}
    assert values(metrics, "_unknown") == {(): 1}


def test_of_many_the_greatest_are_shown_and_the_others_counted() -> None:
    many = 3 * SHOWN_MAX
    source = ListedSource(
        all_partitions=[log_of("t", 0, end=many)],
        offsets=[CommittedFacts(f"g{n}", "t", 0, n * 7 % many) for n in range(many)],
    )
    found = at_once(look(source))
    shown = sorted(found.by_partition.values())
    assert shown == sorted(found.by_group.values()) == list(range(2 * SHOWN_MAX + 1, many + 1))
    assert found.excluded == {("partitions",): 2 * SHOWN_MAX, ("groups",): 2 * SHOWN_MAX}


def test_names_that_are_cut_to_the_same_are_one_series_of_the_greater_lag() -> None:
    """Prometheus refuses a page that has a series twice."""
    source = ListedSource(
        all_partitions=[log_of("t", 0, end=9)],
        offsets=[CommittedFacts("g" * 300 + end, "t", 0, int(end)) for end in "315"],
    )
    found = at_once(look(source))
    assert list(found.by_partition.values()) == list(found.by_group.values()) == [8]
    assert found.excluded == {("partitions",): 2, ("groups",): 2}


def test_the_metrics_of_a_page_are_of_one_look() -> None:
    source = ListedSource([log_of("t")], offsets=[CommittedFacts("g", "t", 0, 1)])
    metrics, clock = Registry(), ManualClock()
    ConsumerLag(source, clock).register(metrics)
    assert source.looked_at == 0
    metrics.render()
    assert source.looked_at == 1
    clock.advance(FRESH_MS)
    source.offsets.append(CommittedFacts("h", "t", 0, 2))
    assert values(metrics, "_sum") == {("g",): 99, ("h",): 98}


class OneEnd(ListedSource):
    """Finds a partition's end as fast as a broker does."""

    def committed_end(self, topic: str, partition: int) -> int:
        return 100


@pytest.mark.alone
def test_no_piece_of_the_page_is_longer_than_a_turn_of_the_loop_may_be() -> None:
    """By the processor's time: some groups on 3,000 partitions, and very many small groups."""
    offsets = [CommittedFacts(f"group-{n}", "t", p, p) for n in range(4) for p in range(3_000)]
    offsets += [CommittedFacts(f"small-{n}", "t", 0, n % 90) for n in range(20_000)]
    metrics, clock = Registry(), ManualClock()
    ConsumerLag(OneEnd(offsets=offsets), clock).register(metrics)

    def longest_ms() -> float:
        clock.advance(FRESH_MS)
        pieces, longest = metrics.pieces(), 0.0
        while True:
            began = time.thread_time()
            piece = next(pieces, None)
            longest = max(longest, time.thread_time() - began)
            if piece is None:
                return longest * 1_000

    assert min(longest_ms() for _ in range(3)) < TURN_MS
