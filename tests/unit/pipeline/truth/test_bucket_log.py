"""A bucket alone, as brokers leave it and as accidents leave it."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.types import EpochEntry, TopicPartition
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.errors import (
    DamagedDataError,
    DataLossError,
    OptionError,
    StoreUnreachableError,
)
from pipeline.truth.bucket_log import BucketLog
from pipeline.values import Isolation, OffsetRange, Plan, RemotePiece, SplitLimits, Where
from rsm_plugins.api import RemoteStorageError, StoredObject
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import Manifest, dump_manifest, parse_manifest
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from tests.support.lake.bucket import Bucket, topic_id_of
from tests.support.lake.rows import Row
from tests.support.sim.clock import ManualClock

ORDERS = TopicPartition("orders", 0)
SKIPPING = {"fail_on_data_loss": False}


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """Three segments of nine offsets each."""
    with Bucket(tmp_path) as made:
        orders = made.partition("orders")
        for _ in range(3):
            orders.batches(3).roll()
        orders.copy()
        yield made


def opened(bucket: Bucket, clock: ManualClock | None = None, **where: Any) -> BucketLog:
    return BucketLog(Where(store=bucket.address, **where), bucket.address, clock or ManualClock())


def objects(tmp_path: Path, suffix: str) -> list[Path]:
    """Objects of that kind, ascending by offset."""
    return sorted((tmp_path / "store").rglob(f"*{suffix}"), key=lambda path: path.name)


def plan_of(log: BucketLog, start: int, end: int) -> Plan:
    return log.plan({ORDERS: OffsetRange(start, end)}, SplitLimits())


def held(plan: Plan) -> list[tuple[int, int]]:
    pieces = [piece for split in plan.splits for piece in split.pieces]
    assert all(isinstance(piece, RemotePiece) for piece in pieces)
    return [(piece.first, piece.last) for piece in pieces]


def rewritten(path: Path, change: Callable[[Manifest], Manifest]) -> None:
    path.write_bytes(dump_manifest(change(parse_manifest(path.read_bytes()))))


def test_topics_and_ranges_are_found_without_brokers(bucket: Bucket) -> None:
    with closing(opened(bucket)) as log:
        assert log.topics() == ["orders"]
        assert log.partitions(["orders"]) == [ORDERS]
        assert log.earliest([ORDERS]) == {ORDERS: 0}
        assert log.latest([ORDERS]) == log.remote_ends([ORDERS]) == {ORDERS: 27}
        plan = plan_of(log, 5, 20)
        assert held(plan) == [(5, 8), (9, 17), (18, 19)]
        assert "read alone" in plan.facts.notes[0]
        with pytest.raises(UnknownTopicError, match="did you mean orders"):
            log.partitions(["order"])


def test_a_topic_with_a_truncated_folder_name_is_found_by_its_full_name(
    bucket: Bucket,
) -> None:
    names = ["x" * 248 + end for end in "ab"]
    for name in names:
        bucket.partition(name).append("a").roll().copy()
    with closing(opened(bucket)) as log:
        assert log.topics() == sorted(["orders", *names])
        assert log.latest([TopicPartition(names[1], 0)]) == {TopicPartition(names[1], 0): 1}


def test_an_id_that_the_bucket_has_not_is_refused(bucket: Bucket) -> None:
    wrong = topic_id_of("orders", 1)
    with (
        closing(opened(bucket, topic_ids={"orders": wrong})) as log,
        pytest.raises(OptionError, match=r"topicId=.*no topic orders of this id"),
    ):
        log.latest([ORDERS])


def test_two_ids_of_one_name_are_refused_with_the_ways_to_choose(bucket: Bucket) -> None:
    bucket.partition("orders", life=1).batches(1).roll().copy()
    with (
        closing(opened(bucket)) as log,
        pytest.raises(OptionError, match=r'tidemark\.topicId=\{"orders":"id"\} .* --topic-id'),
    ):
        log.latest([ORDERS])


def test_a_directory_that_is_no_bucket_is_doubted(tmp_path: Path) -> None:
    with (
        Bucket(tmp_path) as empty,
        closing(opened(empty)) as log,
        pytest.raises(UnknownTopicError, match="'orders': the bucket holds no complete copy"),
    ):
        log.partitions(["orders"])


def test_a_store_that_cannot_be_listed_is_one_line_with_the_host(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RemoteStorageError("access denied")

    monkeypatch.setattr(LayoutStorageManager, "list_objects", fail)
    with pytest.raises(StoreUnreachableError) as refused:
        opened(bucket)
    assert f"cannot be used from host {socket.gethostname()}: access denied" in str(refused.value)


def test_later_copies_are_seen_after_a_while_by_their_manifest_only(
    bucket: Bucket, tmp_path: Path
) -> None:
    clock = ManualClock()
    with closing(opened(bucket, clock)) as log:
        assert log.latest([ORDERS]) == {ORDERS: 27}
        for path in objects(tmp_path, ".manifest"):
            path.write_bytes(b"not read again")
        bucket.partitions[0].batches(2).roll().copy()
        assert log.latest([ORDERS]) == {ORDERS: 27}
        clock.advance(31_000)
        assert log.latest([ORDERS]) == {ORDERS: 33}
        assert held(plan_of(log, 20, 33)) == [(20, 26), (27, 32)]


def test_a_copy_without_manifest_is_none(bucket: Bucket, tmp_path: Path) -> None:
    objects(tmp_path, ".manifest")[2].unlink()
    with closing(opened(bucket)) as log:
        assert log.latest([ORDERS]) == {ORDERS: 18}


def test_below_a_hole_nothing_is_read_and_the_plan_says_so(bucket: Bucket, tmp_path: Path) -> None:
    objects(tmp_path, ".manifest")[1].unlink()
    with closing(opened(bucket)) as log:
        assert log.earliest([ORDERS]) == {ORDERS: 18}
        plan = plan_of(log, 18, 27)
        assert any("no complete copy holds offsets 9 to 17" in one for one in plan.facts.warnings)
        with pytest.raises(DataLossError, match="offsets 5 to 17 are below the log start"):
            plan_of(log, 5, 27)
    with (
        closing(opened(bucket, log_starts={ORDERS: 0})) as log,
        pytest.raises(DataLossError, match="offsets 9 to 17 are in neither tier"),
    ):
        plan_of(log, 0, 27)
    with closing(opened(bucket, log_starts={ORDERS: 0}, **SKIPPING)) as log:
        plan = plan_of(log, 0, 30)
        assert held(plan) == [(0, 8), (18, 26)]
        assert plan.facts.lost_offsets == 9 + 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lie(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        rewritten(path, lambda one: replace(one, metadata=replace(one.metadata, **changes)))

    return change


def lie_of_another_version(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 9}))


FLAWS: list[tuple[str, Callable[[Path], None], str]] = [
    (".manifest", cut, "manifest cannot be read"),
    (".manifest", lie_of_another_version, "manifest version=9"),
    (".manifest", lie(start_offset=8), "is of another segment"),
    (".manifest", lie(end_offset=8), "it says offsets 9 to 8"),
    (".manifest", lie(segment_size_bytes=5), "it says 5 and"),
    (".manifest", lie(leader_epochs=()), "its leader epochs are not a chain"),
    (".manifest", lie(leader_epochs=(EpochEntry(0, 9), EpochEntry(1, 30))), "beyond its end"),
    (".log", cut, "its .log object has"),
    (".log", Path.unlink, "its .log object is missing"),
    (".indexes", Path.unlink, "its .indexes object is missing"),
]


@pytest.mark.parametrize(("suffix", "spoil", "text"), FLAWS)
def test_a_damaged_copy_is_an_error_that_names_it_or_is_left_out(
    bucket: Bucket, tmp_path: Path, suffix: str, spoil: Callable[[Path], None], text: str
) -> None:
    path = objects(tmp_path, suffix)[1]
    if spoil is cut and suffix == ".manifest":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        spoil(path)
    with (
        closing(opened(bucket)) as log,
        pytest.raises(DamagedDataError, match=text) as refused,
    ):
        log.latest([ORDERS])
    assert path.stem in str(refused.value)
    with closing(opened(bucket, **SKIPPING)) as log:
        assert log.earliest([ORDERS]) == {ORDERS: 18}
        assert any(path.stem in one for one in plan_of(log, 18, 27).facts.warnings)


def test_a_copy_that_ended_while_the_bucket_was_listed_is_whole(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = objects(tmp_path, ".log")[2].name
    listed = LocalFsRemoteStorageManager.list_objects

    def list_objects(self: LocalFsRemoteStorageManager, prefix: str = "") -> Iterator[StoredObject]:
        found = listed(self, prefix)
        return (one for one in found if prefix or not one.key.endswith(late))

    monkeypatch.setattr(LocalFsRemoteStorageManager, "list_objects", list_objects)
    with closing(opened(bucket)) as log:
        assert log.latest([ORDERS]) == {ORDERS: 27}


def test_a_transaction_that_ends_in_a_hole_is_nobodys(tmp_path: Path) -> None:
    """Its marker is gone, and with it the word that it was aborted."""
    with Bucket(tmp_path / "bucket") as made:
        orders = made.partition("orders").append("plain")
        orders.append("aborted", producer_id=7, transactional=True).append("behind").roll().copy()
        orders.append("more", producer_id=7, transactional=True).abort(7).roll().copy()
        orders.append("late").roll().copy()
        orders.delete(1)
        committed = {"isolation": Isolation.READ_COMMITTED, "log_starts": {ORDERS: 0}}
        with closing(opened(made, **SKIPPING, **committed)) as log:
            plan = plan_of(log, 0, 6)
            assert held(plan) == [(0, 0), (5, 5)]
            assert plan.facts.lost_offsets == 4
        with closing(opened(made, **committed)) as log, pytest.raises(DataLossError):
            plan_of(log, 0, 6)


def test_a_listing_that_takes_long_is_not_old_when_it_ends(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, listed = ManualClock(), LocalFsRemoteStorageManager.list_objects
    listings = list[int]()

    def slow(self: LocalFsRemoteStorageManager, prefix: str = "") -> Iterator[StoredObject]:
        clock.advance(40_000)
        listings.append(clock.monotonic_ms())
        return listed(self, prefix)

    monkeypatch.setattr(LocalFsRemoteStorageManager, "list_objects", slow)
    with closing(opened(bucket, clock)) as log:
        for wait_ms in (0, 119_000):
            clock.advance(wait_ms)
            assert log.partitions(["orders"]) == [ORDERS]
            assert log.latest([ORDERS]) == {ORDERS: 27}
        assert len(listings) == 1
        clock.advance(1_001)
        log.latest([ORDERS])
        assert len(listings) == 2


def test_a_copy_that_was_repaired_is_read_again(bucket: Bucket, tmp_path: Path) -> None:
    clock, path = ManualClock(), objects(tmp_path, ".log")[1]
    aside = path.rename(tmp_path / "aside")
    with closing(opened(bucket, clock, **SKIPPING)) as log:
        assert log.earliest([ORDERS]) == {ORDERS: 18}
        aside.rename(path)
        clock.advance(31_000)
        assert log.latest([ORDERS]) == {ORDERS: 27}
        assert held(plan_of(log, 0, 27)) == [(0, 8), (9, 17), (18, 26)]


def test_leader_epochs_that_contradict_the_newest_copy_are_named(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.partitions[0].lead(4).batches(3).roll().copy()
    lying = (EpochEntry(0, 18), EpochEntry(4, 25))
    lie(leader_epochs=lying)(objects(tmp_path, ".manifest")[2])
    with (
        closing(opened(bucket)) as log,
        pytest.raises(DamagedDataError, match="contradict those of the newest copy"),
    ):
        log.latest([ORDERS])


def test_a_manifest_that_denies_its_leader_epoch_index_is_no_guide(
    bucket: Bucket, tmp_path: Path
) -> None:
    lie(leader_epochs=(EpochEntry(7, 18),))(objects(tmp_path, ".manifest")[2])
    with (
        closing(opened(bucket)) as log,
        pytest.raises(DamagedDataError, match="is not that of its manifest"),
    ):
        log.latest([ORDERS])
    with closing(opened(bucket, **SKIPPING)) as log:
        assert log.latest([ORDERS]) == {ORDERS: 18}


def test_offsets_by_time_are_those_that_a_reader_of_all_rows_finds(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition("orders")
        base = 1_700_000_000_000
        for number in range(40):
            stamp = base + (number * 37) % 101
            orders.append(
                *[(stamp + n % 3, None, b"%d" % n, []) for n in range(5)], codec=number % 5
            )
            if number % 9 == 8:
                orders.roll()
        orders.roll().copy()
        rows = sorted(bucket.rows(alone=True), key=lambda row: row.offset)
        with closing(opened(bucket)) as log:
            for time_ms in [0, *range(base - 1, base + 106)]:
                found = log.offsets_at({ORDERS: time_ms})[ORDERS]
                assert found == first_at(rows, time_ms), time_ms


def first_at(rows: list[Row], time_ms: int) -> int | None:
    return next((row.offset for row in rows if row.timestamp_ms >= time_ms), None)


def test_a_committed_reader_ends_where_the_store_cannot_tell(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition("orders")
        orders.append("a", "b").append("open", producer_id=3, transactional=True).append("c").roll()
        orders.abort(3)
        orders.copy()
        with closing(opened(bucket, isolation=Isolation.READ_COMMITTED)) as log:
            assert log.latest([ORDERS]) == {ORDERS: 2}
        with closing(opened(bucket)) as log:
            assert log.latest([ORDERS]) == {ORDERS: 4}
