"""The remover of deleted topics within the tier: its passes, calls that hang, what health says."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tier_pair import Pair

from rlm.messages import Health, ImageChanged
from rlm.removed_topics import RemovedTopicsOfBroker
from rlm.testing import SimulatedBroker


class Passes:
    """Notes passes of a remover; the test may give one up while it runs."""

    def __init__(self) -> None:
        self.begun = 0
        self.during: Callable[[Callable[[], None]], None] = lambda give_up: None

    def __call__(self, give_up: Callable[[], None]) -> None:
        self.begun += 1
        during, self.during = self.during, lambda give_up: None
        during(give_up)


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
def pair(tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch) -> Pair:
    class WithRemover(Pair):
        def _plugins(self, config: object, calls: object) -> object:  # type: ignore[override]
            self.remove_deleted = passes
            return super()._plugins(config, calls)  # type: ignore[arg-type]

    return WithRemover(tmp_path)


def wake(pair: Pair) -> None:
    pair.broker.tell(ImageChanged([]))
    pair.pump()


def test_a_pass_that_is_given_up_makes_way_for_another(pair: Pair, passes: Passes) -> None:
    begun: list[int] = []

    def hang(give_up: Callable[[], None]) -> None:
        wake(pair)
        begun.append(passes.begun)  # one pass at a time
        give_up()
        pair.workers.turn()
        begun.append(passes.begun)

    passes.during = hang
    wake(pair)
    assert begun == [1, 2]


def test_the_end_of_a_pass_that_was_given_up_ends_no_other(pair: Pair, passes: Passes) -> None:
    begun: list[int] = []

    def second(give_up: Callable[[], None]) -> None:
        """While it runs, the first one ends; a third must not begin beside it."""
        pair.workers.turn()
        wake(pair)
        begun.append(passes.begun)

    def first(give_up: Callable[[], None]) -> None:
        passes.during = second
        give_up()

    passes.during = first
    wake(pair)
    assert begun == [2]
    assert passes.begun == 3, "the wish for a third is not lost"


def test_giving_up_twice_begins_one_pass(pair: Pair, passes: Passes) -> None:
    def hang(give_up: Callable[[], None]) -> None:
        give_up()
        pair.workers.turn()
        give_up()
        pair.workers.turn()

    passes.during = hang
    wake(pair)
    assert passes.begun == 2


def test_what_only_an_operator_can_settle_is_in_health(pair: Pair) -> None:
    pair.removal_red = ("topic tides (id x) has remote segments",)
    pair.scheduler.advance(1_000)
    last = [each for each in pair.told if isinstance(each, Health)][-1]
    assert [(red.partition, red.reason) for red in last.red] == [(-1, pair.removal_red[0])]


def test_the_remover_sees_the_brokers_image() -> None:
    broker = SimulatedBroker()
    image = RemovedTopicsOfBroker(broker).image()
    assert image is not None
    assert image.topic_ids == frozenset(broker.topic_ids)
    assert image.removed_ids == frozenset()
    assert image.cluster_id == "cluster"
