"""A deletion that fails for long: yellow, then red, until it works or is another broker's."""

from pathlib import Path

import pytest

from rlm.deletions import NAMED_MAX, Deletions
from rlm.link.messages import Health, PartitionSettings, Unassign
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import RemoteLogSegmentMetadata
from rsm_plugins.testing import FaultyStorage, Operation, copy, segment
from tests.support.sim.clock import ManualClock
from tests.support.tier.pair import NAMES, Pair

LATE_MS, COPY_MAX_MS = 600_000, 3_600_000


class Refusing:
    """A store that refuses to delete, and the clock."""

    def __init__(self, root: Path, copy_max_ms: int = COPY_MAX_MS) -> None:
        plugin = LocalFsRemoteStorageManager()
        plugin.configure({"dir": str(root)})
        self.storage, self.clock = FaultyStorage(plugin), ManualClock()
        self.deletions = Deletions(self.storage, self.clock, LATE_MS, copy_max_ms)

    def refused(self, number: int = 1, words: str = "AccessDenied") -> None:
        self.storage.fail_next(Operation.DELETE, RemoteStorageError(words))
        with pytest.raises(RemoteStorageError):
            self.deletions.delete_log_segment_data(segment(number))

    def told(self) -> tuple[str, bool]:
        late = self.deletions.long_failing()
        return ("", False) if late is None else (late.reason, late.is_unhealthy)


def test_it_is_yellow_after_its_time_with_the_first_and_the_words(tmp_path: Path) -> None:
    store = Refusing(tmp_path)
    store.refused(1, "first words")
    store.clock.advance(1)
    store.refused(2)
    store.clock.advance(LATE_MS - 2)
    assert store.told() == ("", False)
    store.refused(1, "last words of the store")
    store.clock.advance(1)
    reason, is_unhealthy = store.told()
    assert reason.startswith(
        "1 deletions fail for 10 min, the first of segment AAAAAAAAAAAAAAAAAAAAAQ"
    )
    assert "orders-0 from offset 0: last words of the store" in reason
    assert not is_unhealthy
    store.clock.advance(1)
    assert store.told()[0].startswith("2 deletions fail")


@pytest.mark.parametrize(
    ("copy_max_ms", "unhealthy_ms"), [(COPY_MAX_MS, COPY_MAX_MS), (60_000, 2 * LATE_MS)]
)
def test_it_is_unhealthy_after_max_of_copy_maximum_and_twice_its_time(
    tmp_path: Path, copy_max_ms: int, unhealthy_ms: int
) -> None:
    store = Refusing(tmp_path, copy_max_ms)
    store.refused()
    store.clock.advance(unhealthy_ms - 1)
    store.refused()
    assert store.told()[1] is False
    store.clock.advance(1)
    assert store.told()[1] is True


def test_all_are_counted_in_the_totals_those_of_deleted_topics_too(tmp_path: Path) -> None:
    """The remover of deleted topics comes here; by topic nothing is counted then."""
    store = Refusing(tmp_path)
    store.refused(1)
    store.refused(1)
    for number in (1, 2, 3):
        store.deletions.delete_log_segment_data(copy(store.storage, segment(number)))
    assert store.deletions.totals() == {"remote_delete_requests": 5, "remote_delete_errors": 2}


def test_it_is_over_when_the_deletion_works(tmp_path: Path) -> None:
    store = Refusing(tmp_path)
    copied = copy(store.storage, segment())
    store.refused()
    store.clock.advance(LATE_MS)
    store.deletions.delete_log_segment_data(copied)
    assert store.told() == ("", False)
    assert store.deletions.failing() == 0


def test_what_nobody_tries_any_more_is_not_told_for_ever(tmp_path: Path) -> None:
    store = Refusing(tmp_path)
    store.refused()
    store.clock.advance(COPY_MAX_MS)
    assert store.told()[1] is True
    store.clock.advance(1)
    assert store.told() == ("", False)


def test_what_another_broker_deletes_is_forgotten(tmp_path: Path) -> None:
    store = Refusing(tmp_path)
    store.refused()
    store.clock.advance(LATE_MS)
    store.deletions.forget(b"T" * 16, 1)
    assert store.deletions.failing() == 1
    store.deletions.forget(b"T" * 16, 0)
    assert store.deletions.failing() == 0


class Raising(LocalFsRemoteStorageManager):
    """Of somebody else: what its library raises goes through."""

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        raise PermissionError(13, "no right to delete")


def test_an_error_of_the_plugin_itself_counts_as_one_of_the_interface(
    tmp_path: Path,
) -> None:
    store = Refusing(tmp_path)
    store.storage.replace_inner(Raising())
    for _ in range(2):
        with pytest.raises(RemoteStorageError, match="no right to delete"):
            store.deletions.delete_log_segment_data(segment())
        store.clock.advance(LATE_MS)
    reason, _ = store.told()
    assert "the storage plugin raised PermissionError: [Errno 13] no right to delete" in reason
    assert f"{Path(__file__).name}:" in reason, "where to look"


def test_many_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    store = Refusing(tmp_path)
    for number in range(NAMED_MAX + 5):
        store.refused(number)
    assert store.deletions.failing() == NAMED_MAX


def health(pair: Pair) -> Health:
    pair.scheduler.advance(1_000)
    pair.pump()
    return next(each for each in reversed(pair.told) if isinstance(each, Health))


@pytest.mark.parametrize("gone", [True, False])
def test_a_partition_that_is_led_elsewhere_tells_of_no_deletions(pair: Pair, gone: bool) -> None:
    pair.storage.fail_next(Operation.DELETE, RemoteStorageError("405 from the store"), 10**4)
    pair.assign(settings=PartitionSettings(retention_bytes=1))
    for _ in range(3):
        pair.scheduler.advance(60_000)
        pair.pump()
    deletions = pair.tier._plugins.deletions
    assert deletions.failing() > 0
    if gone:
        pair.ask(Unassign(*NAMES, 1))
    else:
        pair.assign(is_leader=False)
    assert deletions.failing() == 0


def test_a_led_partition_whose_deletions_fail_tells_health(pair: Pair) -> None:
    pair.storage.fail_next(Operation.DELETE, RemoteStorageError("405 from the store"), 10**4)
    pair.assign(settings=PartitionSettings(retention_bytes=1))
    pair.scheduler.advance(60_000)
    pair.pump()
    assert health(pair).yellow == []
    for _ in range(11):
        pair.scheduler.advance(60_000)
        pair.pump()
    [reason] = health(pair).yellow
    assert "405 from the store" in reason
    for _ in range(60):
        pair.scheduler.advance(60_000)
        pair.pump()
    last = health(pair)
    assert last.yellow == []
    assert any("deletions fail for" in each.reason for each in last.unhealthy)
    pair.assign(is_leader=False)
    assert not any("deletions fail for" in each.reason for each in health(pair).unhealthy)
