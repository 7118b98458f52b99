"""The remover of deleted topics within the tier: its passes, calls that hang, what health says."""

from collections.abc import Callable, Collection
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

import pytest
from tier_pair import NAMES, Pair

from kafka_protocol.types import TopicIdPartition
from rlm.config import TierConfig
from rlm.link import LinkFailureError
from rlm.messages import Health, ImageChanged, Unassign
from rlm.performer import EXPIRATION_POOL
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.removed_topics import RemovedTopicsOfBroker
from rlm.testing import PARTITION, SimulatedBroker
from rlmm.api import Fence, PartitionDeleteState
from rlmm.topic_based.removal_policy import ClusterImage
from rlmm.topic_based.remover import NotTakenError, Remover
from rsm_plugins.segment import RemoteLogSegmentMetadata

CALL_MAX_MS, GRACE_MS = 1_000, 500


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
    class WithPasses(Pair):
        def _plugins(self, config: object, calls: object) -> object:  # type: ignore[override]
            self.remove_deleted = passes
            return super()._plugins(config, calls)  # type: ignore[arg-type]

    return WithPasses(tmp_path)


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


class Removals:
    """A metadata log in which both topics of the test are removed."""

    def __init__(self, *topic_ids: bytes) -> None:
        self.removed = frozenset(topic_ids)

    def image(self) -> ClusterImage | None:
        return ClusterImage(frozenset(), self.removed, "c")

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        pass

    def keep_removals(self, marked: Collection[bytes]) -> None:
        pass


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


def state_of(pair: Pair, partition: TopicIdPartition) -> PartitionDeleteState | None:
    known = pair.metadata.deletion(partition)
    assert known is not None
    return known.state


class WithRemover(Pair):
    """A tier with a remover; its calls are watched as those of all tasks."""

    def __init__(self, root: Path, removals: Removals, **more: Any) -> None:
        self.removals = removals
        super().__init__(root, call_max_ms=CALL_MAX_MS, copy_max_ms=5_000, **more)

    def _plugins(self, config: TierConfig, calls: object) -> Plugins:
        assert isinstance(calls, PluginCalls)
        self.remove_deleted = Remover(
            self.metadata,
            self.storage,
            self.removals,
            cluster_id="c",
            node_id=1,
            clock=self.clock,
            grace_ms=GRACE_MS,
            copy_max_ms=config.copy_max_ms,
            watch_call=lambda hangs: calls.call(
                EXPIRATION_POOL, "delete", config.call_max_ms, on_overdue=hangs, writes=True
            ),
            may_write=lambda: calls.may_write,
        ).run_pass
        return super()._plugins(config, calls)


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
