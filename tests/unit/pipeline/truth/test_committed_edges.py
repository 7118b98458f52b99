"""Aborted and open transactions of a range: which indexes are read, and what of them counts."""

import io
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest

from kafka_protocol.files import producer_snapshot
from kafka_protocol.files.producer_snapshot import ProducerEntry
from kafka_protocol.files.txn_index import AbortedTransaction, pack_entry
from kafka_protocol.types import EpochEntry, TopicIdPartition, TopicPartition
from pipeline.errors import DamagedDataError, DataLossError, StoreUnreachableError
from pipeline.plan.live import LiveRun
from pipeline.store import from_store
from pipeline.truth import indexes as index_module
from pipeline.truth.committed import (
    Transactions,
    open_from_of,
    transactions_of,
    transactions_of_each,
)
from pipeline.truth.indexes import SegmentIndexes
from pipeline.values import Isolation, OffsetRange
from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)
from tests.support.lake.bucket import Bucket
from tests.support.lake.reading import check_rows, rows_of_log, where_alone

HOME = TopicIdPartition(b"o" * 16, 0, "orders")


def segment(first: int, last: int, *, has_aborted: bool = True) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(HOME, first.to_bytes(16, "big")),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=100,
        leader_epochs=(EpochEntry(0, first),),
        state=SegmentState.COPY_SEGMENT_FINISHED,
        txn_index_empty=not has_aborted,
    )


def whole(*segments: RemoteLogSegmentMetadata) -> list[LiveRun]:
    return [LiveRun(one.start_offset, one.end_offset, one) for one in segments]


@dataclass
class SaidIndexes(LocalFsRemoteStorageManager):
    """A store of indexes that a test says, by the segment's start offset; without a log.

    Attributes:
        aborted: entries of transaction indexes; absent: there is no such index.
        open_firsts: first offsets of transactions in producer snapshots; -1: a producer with none.
        gone: segments of which nothing is left.
        asked: kind and start offset of all that was asked for.
    """

    aborted: dict[int, Sequence[AbortedTransaction]] = field(default_factory=dict)
    open_firsts: dict[int, Sequence[int]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    asked: list[tuple[IndexType, int]] = field(default_factory=list)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        at = metadata.start_offset
        self.asked.append((index_type, at))
        data = b""
        if index_type is IndexType.TRANSACTION:
            if at in self.gone or at not in self.aborted:
                raise RemoteResourceNotFoundError("no such index")
            data = b"".join(map(pack_entry, self.aborted[at]))
        elif at in self.gone:
            raise RemoteResourceNotFoundError("no such segment")
        elif index_type is IndexType.PRODUCER_SNAPSHOT:
            firsts = self.open_firsts.get(at, ())
            data = bytes(
                producer_snapshot.dump(
                    ProducerEntry(number, 0, 0, 0, 0, 0, -1, first)
                    for number, first in enumerate(firsts)
                )
            )
        return io.BytesIO(data)


def found(store: SaidIndexes, runs: Sequence[LiveRun], wanted: OffsetRange) -> Transactions:
    return transactions_of(SegmentIndexes(lambda: store), runs, wanted)


def opens(store: SaidIndexes, *runs: LiveRun) -> int | None:
    return open_from_of(SegmentIndexes(lambda: store), runs)


@pytest.mark.parametrize(
    ("firsts", "open_from"), [((), None), ((-1, -1), None), ((7, -1, 5), 5), ((3, 0), 0)]
)
def test_the_lowest_open_transaction_at_the_end_counts(
    firsts: tuple[int, ...], open_from: int | None
) -> None:
    store = SaidIndexes(open_firsts={0: (1,), 10: firsts})
    assert opens(store, *whole(segment(0, 9), segment(10, 19))) == open_from


def test_the_snapshot_of_a_partly_used_segment_is_ignored() -> None:
    """Its end is of another lineage; an earlier segment says what was open at its own."""
    cut = LiveRun(10, 14, segment(10, 19))
    first = whole(segment(0, 9))
    assert opens(SaidIndexes(open_firsts={0: (4,), 10: (12,)}), *first, cut) == 4
    assert opens(SaidIndexes(open_firsts={10: (12,)}), *first, cut) == 10
    assert opens(SaidIndexes(open_firsts={10: (12,)}), cut) == 10


def test_what_is_open_at_the_end_of_a_stretch_is_undecided_from_there() -> None:
    store = SaidIndexes(open_firsts={0: (4,), 30: (31,)})
    runs = whole(segment(0, 9), segment(20, 29), segment(30, 39))
    assert found(store, runs, OffsetRange(0, 40)).undecided == {10: 4, 40: 31}


@pytest.mark.parametrize(
    ("wanted", "ends"),
    [
        (OffsetRange(9, 20), {10}),
        (OffsetRange(10, 20), set[int]()),
        (OffsetRange(10, 21), {30}),
        (OffsetRange(0, 40), {10, 30}),
    ],
)
def test_only_stretches_that_hold_a_wanted_offset_are_looked_at(
    wanted: OffsetRange, ends: set[int]
) -> None:
    store = SaidIndexes(open_firsts={0: (4,), 20: (24,)})
    runs = whole(segment(0, 9), segment(20, 29))
    assert set(found(store, runs, wanted).undecided) == ends


def test_markers_count_from_the_segment_of_the_first_wanted_offset_on() -> None:
    one, two = AbortedTransaction(1, 2, 9, 10), AbortedTransaction(2, 11, 16, 17)
    store = SaidIndexes(aborted={0: (one,), 10: (two,)})
    runs = whole(segment(0, 9), segment(10, 19))
    assert found(store, runs, OffsetRange(12, 20)).aborted == [two]
    assert found(store, runs, OffsetRange(9, 20)).aborted == [one, two]


def test_a_marker_that_is_not_on_the_chain_aborts_nothing() -> None:
    on, off = AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 2, 7, 8)
    store = SaidIndexes(aborted={0: (on, off)})
    runs = [LiveRun(0, 5, segment(0, 9)), LiveRun(6, 19, segment(6, 19, has_aborted=False))]
    runs[1] = LiveRun(8, 19, runs[1].segment)
    assert found(store, runs, OffsetRange(0, 6)).aborted == [on]


@pytest.mark.parametrize(
    ("stable", "markers"),
    [
        (AbortedTransaction(1, 2, 15, 11), 2),  # another one is open since 11: below the end
        (AbortedTransaction(1, 2, 15, 12), 1),
    ],
)
def test_indexes_are_read_until_nothing_wanted_can_be_open(
    stable: AbortedTransaction, markers: int
) -> None:
    later = AbortedTransaction(2, 11, 22, 23)
    store = SaidIndexes(aborted={10: (stable,), 20: (later,)})
    runs = whole(segment(0, 9, has_aborted=False), segment(10, 19), segment(20, 29))
    assert len(found(store, runs, OffsetRange(5, 12)).aborted) == markers


def test_an_index_that_is_known_to_be_empty_is_not_asked_for() -> None:
    store = SaidIndexes(aborted={10: ()})
    found(store, whole(segment(0, 9, has_aborted=False), segment(10, 19)), OffsetRange(0, 20))
    assert [at for kind, at in store.asked if kind is IndexType.TRANSACTION] == [10]


def test_an_existing_segment_without_a_transaction_index_aborts_nothing() -> None:
    runs = whole(segment(0, 9), segment(10, 19))
    assert found(SaidIndexes(), runs, OffsetRange(0, 20)) == Transactions()
    with pytest.raises(DataLossError, match=r"segment of offsets 0 to 9: its .* not in the store"):
        found(SaidIndexes(gone={0}), runs, OffsetRange(0, 20))


def test_an_index_that_is_damaged_is_named() -> None:
    class Cut(SaidIndexes):
        def fetch_index(
            self, metadata: RemoteLogSegmentMetadata, index_type: IndexType
        ) -> BinaryIO:
            return io.BytesIO(super().fetch_index(metadata, index_type).read()[:-1])

    store = Cut(aborted={0: (AbortedTransaction(1, 2, 3, 4),)})
    with pytest.raises(DamagedDataError, match=r"offsets 0 to 9: its .* index is damaged"):
        found(store, whole(segment(0, 9)), OffsetRange(0, 10))


def test_what_may_pass_is_asked_again_and_a_refusal_is_not() -> None:
    answers: list[Exception | int] = [RetriableRemoteStorageError("503"), 7]
    refusals: list[Exception | int] = [RemoteStorageError("403"), 7]

    def from_list(said: list[Exception | int]) -> int:
        one = said.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    assert from_store(lambda: from_list(answers)) == 7
    with pytest.raises(StoreUnreachableError, match=r"cannot be used from host .*: 403"):
        from_store(lambda: from_list(refusals))
    assert refusals == [7]


def test_what_a_stream_passed_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_ABORTED_MAX", 60)
    monkeypatch.setattr(index_module, "_OPEN_FROM_MAX", 10)
    count = 40
    aborted = {
        10 * n: tuple(AbortedTransaction(1, 10 * n + at, 10 * n + at, 0) for at in range(4))
        for n in range(count)
    }
    store = SaidIndexes(aborted=aborted)
    indexes = SegmentIndexes(lambda: store)
    runs = whole(*(segment(10 * n, 10 * n + 9) for n in range(count)))
    assert len(indexes.aborted(runs, 10 * count)) == 4 * count
    for run in runs:
        assert indexes.aborted([run], run.last + 1) == list(aborted[run.first])
        indexes.open_from(run.segment)
    assert indexes._aborted.weight <= 60
    assert indexes._open_from.weight == 10
    asked = len(store.asked)
    indexes.aborted(runs[-1:], 10 * count)  # the newest are still there
    indexes.open_from(runs[-1].segment)
    assert len(store.asked) == asked


def test_an_index_that_is_too_large_to_be_kept_is_used_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "_ABORTED_MAX", 1)
    one = AbortedTransaction(1, 2, 3, 4)
    assert found(SaidIndexes(aborted={0: (one,)}), whole(segment(0, 9)), OffsetRange(0, 10)) == (
        Transactions([one])
    )


@dataclass
class MeetingIndexes(SaidIndexes):
    """Answers when three are asked at the same time; the test's deadline ends one that waits."""

    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(3))

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self.meeting.wait()
        return super().fetch_index(metadata, index_type)


def test_snapshots_of_many_partitions_are_read_side_by_side() -> None:
    store = MeetingIndexes(open_firsts={0: [5], 10: [], 20: [25]})
    segments = [segment(at, at + 9, has_aborted=False) for at in (0, 10, 20)]
    partitions = [TopicPartition("orders", number) for number in range(3)]
    runs_of = {one: whole(held) for one, held in zip(partitions, segments, strict=True)}
    wanted = dict.fromkeys(partitions, OffsetRange(0, 30))
    with closing(SegmentIndexes(lambda: store)) as indexes:
        found = transactions_of_each(indexes, runs_of, wanted, Isolation.READ_COMMITTED)
    assert [found[one].undecided for one in partitions] == [{10: 5}, {}, {30: 25}]
    assert len(store.asked) == 3


def test_who_reads_all_records_asks_for_no_index() -> None:
    store = SaidIndexes(open_firsts={0: [5]})
    partition = TopicPartition("orders", 0)
    runs_of, wanted = {partition: whole(segment(0, 9))}, {partition: OffsetRange(0, 10)}
    with closing(SegmentIndexes(lambda: store)) as indexes:
        found = transactions_of_each(indexes, runs_of, wanted, Isolation.READ_UNCOMMITTED)
    assert found == {partition: Transactions()}
    assert not store.asked


def test_a_marker_that_an_election_gave_up_aborts_nothing(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition()
        orders.append("a").append("in doubt", producer_id=7, transactional=True)
        orders.append("given up").abort(7).append("too").roll().copy()  # the marker is offset 3
        orders.elect(2, at=2).append("b", "c").commit(7).append("d").roll().copy()
        values = [row.value for row in rows_of_log(where_alone(bucket, COMMITTED), "orders")]
        assert values == [b"a", b"in doubt", b"b", b"c", b"d"]
        check_rows(bucket)


def test_a_marker_that_an_election_gave_up_hides_no_later_index(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition()
        orders.append("a").append("x", producer_id=7, transactional=True)
        orders.append(*"given up").abort(7).append("too").roll().copy()
        orders.elect(2, at=2).abort(7).append("b", producer_id=8, transactional=True)
        orders.append("c").abort(8).append("d").roll().copy()
        values = [row.value for row in rows_of_log(where_alone(bucket, COMMITTED), "orders")]
        assert values == [b"a", b"c", b"d"]
        check_rows(bucket)


COMMITTED = Isolation.READ_COMMITTED
