"""Turns of removed partitions: calls that hang, and deletions that are slow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlmm.api import PartitionDeleteState
from rlmm.testing import PARTITION, segment
from rlmm.topic_based.removal_ports import StoreGate
from rlmm.topic_based.remover import SLICE_MS
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from rsm_plugins.testing import Operation
from tests.support.tier.remover_setup import COPY_MAX_MS, FENCE, GRACE_MS, S0, S1, Setup

FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED
OTHER = PARTITION._replace(topic_id=b"z" * 16)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    """A removed topic of three segments, whose objects may be deleted now."""
    setup = Setup(tmp_path / "remote")
    for each in (S0, S1, segment(3, 20, 29)):
        setup.copy(each)
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS)
    return setup


class Deletion:
    """What happens in each deletion of a topic, and how many began."""

    def __init__(self, setup: Setup, topic_id: bytes = PARTITION.topic_id) -> None:
        self.topic_id, self.inner = topic_id, setup.storage.delete_log_segment_data
        self.hangs: list[Callable[[], None]] = []
        self.begun = 0
        self.meanwhile: Callable[[], None] = lambda: None
        setup.storage.delete_log_segment_data = self  # type: ignore[method-assign,assignment]
        setup.remover = setup.new_remover(StoreGate(watch_call=self.watch))

    @contextmanager
    def watch(self, hangs: Callable[[], None]) -> Iterator[None]:
        self.hangs.append(hangs)
        yield

    def __call__(self, metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.topic_id_partition.topic_id == self.topic_id:
            self.begun += 1
            self.meanwhile()
        self.inner(metadata)


def test_a_hanging_call_ends_its_turn_and_its_partition_is_left_out(setup: Setup) -> None:
    deletion, given_up = Deletion(setup), list[str]()

    def hang() -> None:
        deletion.hangs[-1]()
        assert given_up == ["first"], "the turn is given up while the call still runs"
        assert setup.remover.look() == []
        assert not setup.remover.remove(PARTITION, lambda: given_up.append("second"))

    deletion.meanwhile = hang
    assert not setup.remover.remove(PARTITION, lambda: given_up.append("first"))
    assert given_up == ["first"]
    assert deletion.begun == 1, "the second turn did nothing, nor the first when its call returned"
    deletion.meanwhile = lambda: None
    setup.run_until_gone()
    assert setup.objects() == []
    assert setup.state() is FINISHED


def test_a_call_that_returns_as_it_is_found_hanging_leaves_nothing_out(setup: Setup) -> None:
    deletion, given_up = Deletion(setup), list[int]()
    deletion.meanwhile = lambda: None
    setup.remover.remove(PARTITION, lambda: given_up.append(1))
    deletion.hangs[0]()
    assert given_up == []
    assert setup.remover.look() == [PARTITION]
    setup.run_until_gone()
    assert setup.state() is FINISHED


def test_a_slow_deletion_continues_by_turns(setup: Setup) -> None:
    deletion = Deletion(setup)
    deletion.meanwhile = lambda: setup.clock.advance(SLICE_MS // 2)
    assert setup.remover.remove(PARTITION)
    assert deletion.begun == 2
    assert not setup.remover.remove(PARTITION)
    assert deletion.begun == 3
    assert setup.objects() == []


def test_a_turn_does_one_segment_at_least_and_never_half_of_it(setup: Setup) -> None:
    """Else a deletion that is slower than a turn would begin again for ever."""
    setup.clock.advance(COPY_MAX_MS + 1)
    deletion = Deletion(setup)
    deletion.meanwhile = lambda: setup.clock.advance(2 * SLICE_MS)
    turns = 1
    while setup.remover.remove(PARTITION):
        turns += 1
    assert (turns, deletion.begun) == (3, 3)
    assert setup.state() is FINISHED


def test_an_image_that_comes_late_does_not_use_up_the_turn(setup: Setup) -> None:
    deletion, image = Deletion(setup), setup.log.image
    setup.remover.look()

    def late() -> object:
        setup.clock.advance(2 * SLICE_MS)
        return image()

    setup.clock.advance(2_000)
    setup.log.image = late  # type: ignore[method-assign,assignment]
    assert setup.remover.remove(PARTITION)
    assert deletion.begun == 1


def test_one_partition_that_fails_is_told_once_beside_others_that_do_not(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.manager.own(OTHER, FENCE, 50)
    setup.log.removed.add(OTHER.topic_id)
    error = RetriableRemoteStorageError("access denied")
    for _ in range(3):
        setup.storage.fail_next(Operation.DELETE, error)
        setup.run_pass()
    told = [record.message for record in caplog.records if "removing deleted" in record.message]
    assert len(told) == 1
    assert "access denied" in told[0]
    setup.run_pass()
    told = [record.message for record in caplog.records if "removing deleted" in record.message]
    assert "works again: failed_attempts=3" in told[-1]
