"""The state of many partitions holds the loop for no longer than a slice."""

import gc
import time

import pytest

from broker.observe.console.facts import CommittedFacts, GroupFacts
from broker.observe.console.history import History
from broker.observe.console.selection import Activity
from broker.observe.console.state import describe
from tests.support.console.source import ListedSource, log_of

TURN_MS = 20
_OVER = object()


class IndexedSource(ListedSource):
    """Finds a partition's end as a broker does."""

    def index(self) -> "IndexedSource":
        self.ends = {(one.topic, one.partition): one.log_end for one in self.all_partitions}
        return self

    def committed_end(self, topic: str, partition: int) -> int:
        return self.ends[topic, partition]


def longest_step_ms(source: IndexedSource) -> float:
    """By the processor's time: others may run between two steps, and in them."""
    steps, longest = describe(source, Activity(), History(), 0), 0.0
    while True:
        began = time.thread_time()
        is_over = next(steps, _OVER) is _OVER
        longest = max(longest, time.thread_time() - began)
        if is_over:
            return longest * 1_000


@pytest.mark.alone
def test_no_step_is_longer_than_a_turn_of_the_loop_may_be() -> None:
    places = [(f"topic-{n % 60}", n // 60) for n in range(20_000)]
    source = IndexedSource(
        all_partitions=[log_of(topic, number) for topic, number in places],
        all_groups=[GroupFacts(f"group-{n}", "Stable", 3, 50) for n in range(2_000)],
        offsets=[
            CommittedFacts(f"group-{n}", topic, number, 50)
            for n in range(4)
            for topic, number in places[:3_000]
        ],
    ).index()
    gc.collect()
    gc.freeze()  # a full collection is nobody's step
    try:
        assert min(longest_step_ms(source) for _ in range(3)) < TURN_MS
    finally:
        gc.unfreeze()
