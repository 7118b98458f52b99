"""The remover of deleted topics within the tier: its passes, calls that hang, what health says."""

from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.types import TopicIdPartition
from rlm.link.endpoint import LinkFailureError, Received
from rlm.link.messages import Ack, AnyMessage, Health, ImageChanged, TopicsEmptied, Unassign
from rlm.maintenance.broker_port import LinkBroker
from rlm.maintenance.removals import RemovedTopicsOfBroker
from rlm.workers import EXPIRATION_POOL
from rlmm.api import Fence, PartitionDeleteState
from rlmm.topic_based.removal_ports import NotTakenError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.tier.log_in_memory import PARTITION, SimulatedBroker
from tests.support.tier.pair import NAMES, Pair
from tests.support.tier.removals import CALL_MAX_MS, GRACE_MS, Removals, WithRemover, state_of, wake

FIRST, SECOND, THIRD = (PARTITION._replace(partition=number) for number in range(3))
During = Callable[[Callable[[], None]], bool]


class Noted:
    """A remover that finds these partitions and notes their turns.

    Attributes:
        found: by each look.
        during: what happens in the next turn of a partition; it gets what gives the turn up, and
            says whether the turn is over before all is done.
    """

    def __init__(self) -> None:
        self.found = [FIRST, SECOND, THIRD]
        self.looks = 0
        self.turns: list[int] = []
        self.during: dict[TopicIdPartition, During] = {}
        self.during_look: Callable[[], None] = lambda: None

    def look(self) -> list[TopicIdPartition]:
        self.looks += 1
        during, self.during_look = self.during_look, lambda: None
        during()
        return self.found

    def remove(self, partition: TopicIdPartition, on_given_up: Callable[[], None]) -> bool:
        self.turns.append(partition.partition)
        during = self.during.pop(partition, None)
        return during is not None and during(on_given_up)


@pytest.fixture
def remover() -> Noted:
    return Noted()


@pytest.fixture
def pair(tmp_path: Path, remover: Noted) -> Pair:
    return Pair(tmp_path, remover=remover)


def test_one_look_at_a_time_and_a_wish_for_another_is_kept(pair: Pair, remover: Noted) -> None:
    def look() -> None:
        wake(pair)
        assert remover.looks == 1

    remover.during_look = look
    wake(pair)
    assert remover.looks == 2


def test_partitions_have_their_turns_side_by_side(pair: Pair, remover: Noted) -> None:
    begun: list[list[int]] = []

    def slow(_: Callable[[], None]) -> bool:
        pair.workers.turn()  # the other threads of the pool
        begun.append(list(remover.turns))
        return False

    remover.during[FIRST] = slow
    wake(pair)
    assert begun == [[0, 1, 2]]
    assert remover.turns == [0, 1, 2]


def test_half_of_the_pool_is_left_to_led_partitions(pair: Pair, remover: Noted) -> None:
    pair.workers.sizes[EXPIRATION_POOL] = 4
    begun: list[list[int]] = []

    def slow(_: Callable[[], None]) -> bool:
        pair.workers.turn()
        begun.append(list(remover.turns))
        return False

    remover.during = {FIRST: slow, SECOND: slow}
    wake(pair)
    assert begun[0] == [0, 1], "the second one's end is what lets the third one begin"
    assert remover.turns == [0, 1, 2]


def test_a_pool_of_one_thread_serves_the_remover_too(pair: Pair, remover: Noted) -> None:
    pair.workers.sizes[EXPIRATION_POOL] = 1
    wake(pair)
    assert remover.turns == [0, 1, 2]


def test_a_partition_has_one_turn_at_a_time(pair: Pair, remover: Noted) -> None:
    remover.found = [FIRST]
    begun: list[list[int]] = []

    def slow(_: Callable[[], None]) -> bool:
        wake(pair)  # a look finds it again
        begun.append(list(remover.turns))
        return False

    remover.during[FIRST] = slow
    wake(pair)
    assert begun == [[0]]
    assert remover.turns == [0, 0], "what came since is looked at"


def test_a_turn_that_is_over_before_all_is_done_goes_behind_the_others(
    pair: Pair, remover: Noted
) -> None:
    pair.workers.sizes[EXPIRATION_POOL] = 2
    remover.during[FIRST] = lambda _: True
    wake(pair)
    assert remover.turns == [0, 1, 2, 0]


def test_a_turn_that_is_given_up_makes_way_for_another(pair: Pair, remover: Noted) -> None:
    pair.workers.sizes[EXPIRATION_POOL] = 2
    begun: list[list[int]] = []

    def hang(give_up: Callable[[], None]) -> bool:
        give_up()
        give_up()
        pair.workers.turn()
        begun.append(list(remover.turns))
        return True

    remover.during[FIRST] = hang
    wake(pair)
    assert begun == [[0, 1, 2]]
    assert remover.turns == [0, 1, 2], "what it says after that counts no more"


def test_the_end_of_a_turn_that_was_given_up_ends_no_other(pair: Pair, remover: Noted) -> None:
    """While the second one runs, the first one ends; a third must not begin beside it."""
    remover.found = [FIRST]
    begun: list[list[int]] = []

    def second(_: Callable[[], None]) -> bool:
        pair.workers.turn()
        wake(pair)
        begun.append(list(remover.turns))
        return False

    def first(give_up: Callable[[], None]) -> bool:
        pair.tier.take(Received(ImageChanged([])), lambda _: None)
        pair.workers.turn()  # a look finds it again
        remover.during[FIRST] = second
        give_up()
        return False

    remover.during[FIRST] = first
    wake(pair)
    assert begun == [[0, 0]]
    assert remover.turns == [0, 0, 0], "the wish for a third is not lost"


def test_what_fails_is_found_again(
    pair: Pair, remover: Noted, caplog: pytest.LogCaptureFixture
) -> None:
    remover.found = [FIRST]

    def fail(_: Callable[[], None]) -> bool:
        raise LinkFailureError(-1, "no answer")

    remover.during[FIRST] = fail
    wake(pair)
    assert any("removing orders-0 failed" in record.message for record in caplog.records)
    wake(pair)
    assert remover.turns == [0, 0]


def test_no_turn_begins_once_the_store_is_closed(pair: Pair, remover: Noted) -> None:
    pair.workers.sizes[EXPIRATION_POOL] = 2

    def closed(_: Callable[[], None]) -> bool:
        pair.tier.calls.let_write(False)
        return True

    remover.during[FIRST] = closed
    wake(pair)
    assert remover.turns == [0]
    pair.tier.calls.let_write(True)
    wake(pair)
    assert remover.turns == [0, 0, 1, 2]


def test_what_only_an_operator_can_settle_is_in_health(pair: Pair) -> None:
    pair.removal_reason = ("topic tides (id x) has remote segments",)
    pair.scheduler.advance(1_000)
    last = [each for each in pair.told if isinstance(each, Health)][-1]
    assert [(unhealthy.partition, unhealthy.reason) for unhealthy in last.unhealthy] == [
        (-1, pair.removal_reason[0])
    ]


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

    broker = RemovedTopicsOfBroker(Full())
    with pytest.raises(NotTakenError, match=r"no space left|does not answer"):
        broker.topics_emptied([b"T" * 16])


def test_many_topics_leave_the_list_some_at_a_time() -> None:
    """The broker takes each message in one turn of its event loop."""
    asked: list[list[bytes]] = []

    class Link:
        def ask(self, message: AnyMessage) -> "Future[Received]":
            assert isinstance(message, TopicsEmptied)
            asked.append(message.topic_ids)
            answer: Future[Received] = Future()
            answer.set_result(Received(Ack()))
            return answer

    link: Any = Link()
    ids = [number.to_bytes(16, "big") for number in range(2_500)]
    LinkBroker(link).topics_emptied(ids)
    assert [len(some) for some in asked] == [1_000, 1_000, 500]
    assert [one for some in asked for one in some] == ids
