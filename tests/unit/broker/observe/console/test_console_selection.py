"""Which 500 of many partitions a page shows."""

from random import Random

import pytest

from broker.observe.console.facts import PartitionFacts
from broker.observe.console.selection import Activity, Selection, rank
from tests.support.console.source import log_of


def names(selection: Selection) -> set[str]:
    return {found.topic for found in selection.chosen()}


def test_ill_ones_come_before_lag_and_lag_before_changes() -> None:
    selection = Selection(3)
    selection.add(log_of("still"), -1, -1)
    selection.add(log_of("changed"), -1, 50_000)
    selection.add(log_of("behind"), 5, -1)
    selection.add(log_of("further-behind"), 900, -1)
    selection.add(log_of("ill", problem="offline"), -1, -1)
    assert names(selection) == {"ill", "further-behind", "behind"}


def test_a_change_counts_where_no_group_is_behind() -> None:
    selection = Selection(2)
    for name, changed_ms in (("a-still", -1), ("old", 20_000), ("new", 90_000)):
        selection.add(log_of(name), 0, changed_ms)
    assert names(selection) == {"old", "new"}


def test_topics_of_brokers_come_last_unless_they_are_ill_or_behind() -> None:
    selection = Selection(2)
    selection.add(log_of("__a", is_internal=True), -1, 90_000)
    selection.add(log_of("user"), -1, -1)
    selection.add(log_of("__ill", is_internal=True, problem="offline"), -1, -1)
    assert names(selection) == {"user", "__ill"}


def test_ill_ones_stand_first_then_topics_the_brokers_own_ones_last() -> None:
    selection = Selection()
    for found in (log_of("b", 2), log_of("__a", is_internal=True), log_of("b", 10), log_of("a", 1)):
        selection.add(found, 0, -1)
    selection.add(log_of("z", problem="offline"), -1, -1)
    found = [(one.topic, one.partition) for one in selection.chosen()]
    assert found == [("z", 0), ("a", 1), ("b", 2), ("b", 10), ("__a", 0)]


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_first_of_all_in_whatever_order_they_come(seed: int) -> None:
    rng = Random(seed)
    given = [
        (log_of(f"t{rng.randrange(40)}", n, problem=rng.choice(["", "", "ill"])), lag, changed)
        for n in range(300)
        for lag, changed in [(rng.randrange(-1, 4), rng.randrange(-1, 90_000))]
    ]
    naive = sorted(given, key=lambda one: rank(*one))[:20]
    rng.shuffle(given)
    selection = Selection(20)
    for one in given:
        selection.add(*one)
    assert set(selection.chosen()) == {found for found, *_ in naive}


def test_only_twice_as_many_are_kept() -> None:
    selection, kept = Selection(10), 0
    for n in range(1_000):
        selection.add(log_of("t", n), 0, -1)
        kept = max(kept, len(selection._kept))
    assert kept < 20


def look(activity: Activity, now_ms: int, *found: PartitionFacts) -> list[int]:
    activity.begin()
    seen = [activity.note(one, now_ms) for one in found]
    activity.end()
    return seen


@pytest.mark.parametrize("moved", ["log_end", "copied_end", "log_start"])
def test_a_partition_has_changed_when_one_of_its_ends_moved(moved: str) -> None:
    activity, before = Activity(), log_of("t")
    assert look(activity, 1_000, before) == [-1]
    assert look(activity, 2_000, before) == [-1]
    after = before._replace(**{moved: 500})
    assert look(activity, 3_000, after) == [3_000]
    assert look(activity, 4_000, after) == [3_000]


def test_one_that_went_away_and_came_back_has_not_changed() -> None:
    activity = Activity()
    look(activity, 1_000, log_of("t"))
    look(activity, 2_000)
    assert look(activity, 3_000, log_of("t", end=900)) == [-1]
