"""A description names the local segments above the copied run: what is decided is the same."""

from pathlib import Path
from random import Random

import msgspec
import pytest

from rlm.link.messages import CopiedThrough, PartitionSettings
from rlm.maintenance import copy_policy, retention_policy
from rlm.maintenance.log_facts import LogFacts
from tests.support.tier.facts import facts, local, remote
from tests.support.tier.pair import Pair

SETTINGS = [
    PartitionSettings(),
    PartitionSettings(retention_bytes=700),
    PartitionSettings(copy_lag_ms=-1, copy_lag_bytes=450),
    PartitionSettings(retention_ms=40),
]


def described(whole: LogFacts, closed_from: int, shown_max: int) -> LogFacts:
    closed = whole.log.closed_segments
    below = [each for each in closed if each.last_offset < closed_from]
    shown = closed[len(below) :][:shown_max]
    more = closed[len(below) + len(shown) :]
    log = msgspec.structs.replace(
        whole.log,
        closed_segments=shown,
        closed_from=closed_from,
        closed_bytes_below=sum(each.size_bytes for each in below),
        more_closed_count=len(more),
        more_closed_bytes=sum(each.size_bytes for each in more),
    )
    return LogFacts(log, whole.remote)


def some_facts(rng: Random) -> LogFacts:
    first_local, count = rng.randrange(4), rng.randrange(1, 12)
    size = rng.randrange(50, 150)
    closed = [
        local(at * 10, at * 10 + 9, size, at_ms=at * 10)
        for at in range(first_local, first_local + count)
    ]
    copies = [
        remote(number + 1, at * 10, at * 10 + 9, size=size, at_ms=at * 10)
        for number, at in enumerate(range(first_local + count))
        if rng.random() < 0.8
    ]
    return facts(
        closed,
        copies,
        start=rng.randrange(0, 10 * (first_local + 2)),
        local_start=first_local * 10,
        stable=rng.choice([1_000, (first_local + count) * 10 - 15]),
        local_bytes=size * (count + 1),
    )


@pytest.mark.parametrize("seed", range(300))
def test_decisions_are_those_of_a_whole_description(seed: int) -> None:
    rng = Random(seed)
    whole = some_facts(rng)
    if whole.hole() is not None:
        return  # passes end there
    froms = [0, whole.needed_from, rng.randrange(0, whole.needed_from + 1)]
    for closed_from in froms:
        part = described(whole, closed_from, rng.choice([1, 3, 100]))
        if not part.names_what_is_needed:
            continue
        for settings in SETTINGS:
            now_ms = rng.randrange(200)
            for decide in (copy_policy.next_to_copy, retention_policy.log_start_by_retention):
                assert decide(part, settings, now_ms) == decide(whole, settings, now_ms)
        if not part.log.more_closed_count:
            assert copy_policy.lag(part, settings) == copy_policy.lag(whole, settings)
    assert described(whole, whole.needed_from, 1).names_what_is_needed
    assert not described(whole, whole.needed_from + 1, 100).names_what_is_needed


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_a_pass_asks_only_for_what_lies_above_the_copied_run(pair: Pair) -> None:
    pair.log.fill(4)
    pair.assign()
    assert pair.log.copied == 11
    taking_over, *_ = pair.log.questions
    assert taking_over.closed_from == 2**63 - 1, "log validation needs none by name"
    pair.log.questions.clear()
    pair.scheduler.advance(31_000)
    pair.pump()
    assert {each.closed_from for each in pair.log.questions} == {12}


def test_more_segments_than_a_description_names_are_all_copied_and_counted(pair: Pair) -> None:
    pair.log.closed_shown_max = 2
    pair.log.fill(7)
    pair.log.last_stable = 6
    pair.assign()
    assert pair.log.copied == 5
    lag = 'kafka_server_BrokerTopicMetrics_RemoteCopyLagSegments{topic="orders",partition="0"} 5'
    assert lag in pair.metrics_page()
    pair.log.last_stable = None
    pair.scheduler.advance(31_000)
    pair.pump()
    assert pair.log.copied == 20


def test_if_less_is_copied_than_reported_a_new_description_is_asked_for(
    pair: Pair,
) -> None:
    pair.log.fill(4)
    pair.assign()
    known = next(iter(pair.tier.manager._partitions.values()))
    assert known.ownership is not None
    last = known.ownership.last_report
    assert isinstance(last, CopiedThrough)
    known.ownership.last_report = msgspec.structs.replace(last, last_offset=100)
    pair.log.questions.clear()
    pair.scheduler.advance(31_000)
    pair.pump()
    assert [each.closed_from for each in pair.log.questions][:2] == [101, 12]
