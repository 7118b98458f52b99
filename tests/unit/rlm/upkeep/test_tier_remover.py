"""The remover of deleted topics within the tier: its passes, calls that hang, what health says."""

from collections.abc import Callable, Collection
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import pytest

from rlm.link.endpoint import LinkFailureError
from rlm.link.messages import Health, Unassign
from rlm.testing import PARTITION, SimulatedBroker
from rlm.upkeep.removed_topics import RemovedTopicsOfBroker
from rlmm.api import Fence, PartitionDeleteState
from rlmm.topic_based.remover import NotTakenError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.tier.pair import NAMES, Pair
from tests.support.tier.removals import CALL_MAX_MS, GRACE_MS, Removals, WithRemover, state_of, wake


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
def pair(tmp_path: Path, passes: Passes) -> Pair:
    return Pair(tmp_path, remove_deleted=passes)


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


def test_a_hanging_delete_holds_up_no_other_topic(tmp_path: Path) -> None:
    other = PARTITION._replace(topic_id=b"o" * 16, topic="other")
    pair = WithRemover(tmp_path, Removals(PARTITION.topic_id, other.topic_id))
    pair.log.fill(3)
    pair.assign()
    assert pair.log.copied == 8
    pair.broker.ask(Unassign(*NAMES, pair.log.leader_epoch))
    pair.pump()
    pair.metadata.own(other, Fence(1, 1))
    delete, ids = pair.storage.delete_log_segment_data, []

    def hang(metadata: RemoteLogSegmentMetadata) -> None:
        ids.append(metadata.id.id)
        if len(ids) == 1:
            pair.scheduler.advance(CALL_MAX_MS + 1_500)
            pair.workers.turn()
            assert pair.workers.abandoned == ["rlm-expiration"]
            ended.append(state_of(pair, other))
        delete(metadata)

    ended: list[PartitionDeleteState | None] = []
    pair.storage.delete_log_segment_data = hang  # type: ignore[method-assign]
    wake(pair)
    pair.scheduler.advance(GRACE_MS)
    wake(pair)
    assert ended == [PartitionDeleteState.DELETE_PARTITION_FINISHED]
    assert pair.aborted == []
    pair.scheduler.advance(40_000)
    pair.pump()
    assert state_of(pair, PARTITION) is PartitionDeleteState.DELETE_PARTITION_FINISHED
    assert not list(pair.store.rglob("*.log"))


@pytest.mark.parametrize("error", [LinkFailureError(-1, "no space left"), FutureTimeoutError()])
def test_a_record_that_the_broker_does_not_take_is_named_to_the_remover(error: Exception) -> None:
    class Full(SimulatedBroker):
        def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
            raise error

        def keep_removals(self, marked: Collection[bytes]) -> None:
            raise error

    broker = RemovedTopicsOfBroker(Full())
    for note in (broker.topics_emptied, broker.keep_removals):
        with pytest.raises(NotTakenError, match=r"no space left|does not answer"):
            note([b"T" * 16])
