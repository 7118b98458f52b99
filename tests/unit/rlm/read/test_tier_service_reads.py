"""A tier and a broker on a fake link: reads, caches, timestamps, and what is answered when they
fail."""

import io
from array import array
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.files import txn_index
from kafka_protocol.types import EpochEntry
from rlm.link.endpoint import LinkFailureError, Received
from rlm.link.messages import (
    AuxiliaryState,
    AuxiliaryStateAnswer,
    OffsetForTimestamp,
    Read,
    ReadAnswer,
    Reconfigure,
    Released,
    TimestampAnswer,
)
from rlmm.api import MetadataNotReadyError, SegmentUpdate
from rlmm.events import SegmentAdded, SegmentUpdated
from rsm_plugins.api import RemoteResourceNotFoundError, RetriableRemoteStorageError
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata, SegmentState
from rsm_plugins.testing import Operation
from runtime.disk import Disk, OpenFile
from tests.support.tier.log_in_memory import PARTITION, SNAPSHOT, SimulatedBroker, values_of
from tests.support.tier.pair import NAMES, Pair, bytes_of, error_of, tokens_of


def test_an_assigned_partition_is_copied_at_once_and_read_back_whole(pair: Pair) -> None:
    offset, got = 0, {}
    while offset < 60:
        received = pair.read(offset, max_bytes=700)
        values = values_of(bytes_of(received))
        assert min(values)[1] == offset
        assert isinstance(received.message, ReadAnswer)
        offset = received.message.next_offset
        got |= values
        pair.broker.tell(Released(tokens_of(received)))
    assert got == {key: value for key, value in pair.log.truth.items() if key[1] < 60}


def test_an_answer_holds_whole_batches_within_its_bound(pair: Pair) -> None:
    received = pair.read(5, max_bytes=250)
    assert 0 < len(bytes_of(received)) <= 250
    assert values_of(bytes_of(received)).keys() == {(1, 5), (1, 6)}


def test_one_batch_larger_than_the_bound_is_given_where_asked_for(pair: Pair) -> None:
    assert values_of(bytes_of(pair.read(5, max_bytes=1))).keys() == {(1, 5)}


def test_a_chunk_is_fetched_once_for_all_who_read_it(pair: Pair) -> None:
    pair.read(0, max_bytes=100)
    fetched = pair.calls(Operation.FETCH)
    for offset in (0, 3, 2):
        pair.read(offset, max_bytes=100)
    assert pair.calls(Operation.FETCH) == fetched


def test_concurrent_readers_of_a_missing_chunk_share_one_fetch(pair: Pair) -> None:
    question = Read(
        *NAMES,
        1,
        offset=0,
        offset_epoch=1,
        epoch_end=60,
        max_bytes=100,
        min_one_batch=True,
        read_committed=False,
        wait_ms=500,
        holder="one",
    )
    asked = [pair.broker.ask(question) for _ in range(5)]
    pair.pump()
    assert {bytes_of(each.result(0)) for each in asked} == {bytes_of(asked[0].result(0))}
    assert pair.calls(Operation.FETCH) == 1


def test_a_reader_that_continues_finds_the_next_chunk_loaded_ahead(pair: Pair) -> None:
    first = pair.read(0, max_bytes=300)
    assert isinstance(first.message, ReadAnswer)
    second = pair.read(first.message.next_offset, max_bytes=300)
    assert isinstance(second.message, ReadAnswer)
    pair.workers.held.add("remote-reader")  # whatever is asked of the store from here on waits
    assert bytes_of(pair.read(second.message.next_offset, max_bytes=300))


def test_an_answer_ends_where_the_epoch_ends(tmp_path: Path) -> None:
    pair = Pair(tmp_path, chunk_bytes=100_000)
    pair.log.append(10)
    pair.log.new_epoch()
    pair.log.append(10)
    pair.log.roll()
    pair.assign()
    assert values_of(bytes_of(pair.read(4, epoch_end=10))).keys() == {(1, n) for n in range(4, 10)}
    rest = pair.read(10, epoch=2, epoch_end=20)
    assert values_of(bytes_of(rest)).keys() == {(2, n) for n in range(10, 20)}


def test_an_offset_in_no_segment_is_never_out_of_range(pair: Pair) -> None:
    assert error_of(pair.read(61, epoch_end=100)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_whose_metadata_is_not_ready_waits_and_then_gets_9(pair: Pair) -> None:
    pair.metadata.release(PARTITION)
    assert error_of(pair.read(0, wait_ms=100)) == ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_store_that_is_down_gives_56_at_the_deadline_without_a_storm(pair: Pair) -> None:
    pair.storage.down = True
    before = len(pair.storage.calls)
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(pair.storage.calls) - before <= 4
    pair.storage.down = False
    pair.scheduler.advance(10_000)
    assert bytes_of(pair.read(0))


def test_a_missing_object_gives_56(pair: Pair) -> None:
    pair.storage.fail_next(Operation.FETCH, RemoteResourceNotFoundError("gone"), times=100)
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_transient_error_is_retried_before_the_deadline(pair: Pair) -> None:
    pair.storage.fail_next(Operation.FETCH, RetriableRemoteStorageError("once"))
    assert bytes_of(pair.read(0))


def test_a_slow_store_gives_an_empty_answer_and_fills_the_cache(pair: Pair) -> None:
    pair.workers.held.add("remote-reader")
    received = pair.read(0, wait_ms=100)
    assert error_of(received) == ErrorCode.NONE
    assert received.files == ()
    pair.workers.held.clear()
    pair.pump()
    assert bytes_of(pair.read(0))


def logs_of(pair: Pair) -> list[Path]:
    return sorted(pair.store.rglob("*.log"))


def test_one_flipped_bit_gives_2_after_one_refetch_and_never_the_bytes(pair: Pair) -> None:
    path = logs_of(pair)[0]
    data = bytearray(path.read_bytes())
    data[150] ^= 1
    path.write_bytes(data)
    assert error_of(pair.read(0)) == ErrorCode.CORRUPT_MESSAGE
    assert pair.calls(Operation.FETCH) == 2
    data[150] ^= 1
    path.write_bytes(data)
    pair.scheduler.advance(10_000)
    assert bytes_of(pair.read(0))


def test_a_damaged_object_is_told_once_however_often_it_is_read(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    path = logs_of(pair)[0]
    path.write_bytes(bytes(len(path.read_bytes())))
    for _ in range(10):
        assert error_of(pair.read(0)) == ErrorCode.CORRUPT_MESSAGE
    told = [each for each in caplog.records if "are damaged" in each.getMessage()]
    assert len(told) == 1
    pair.scheduler.advance(10_000)
    assert error_of(pair.read(0)) == ErrorCode.CORRUPT_MESSAGE, "fetched again, and still damaged"
    told = [each for each in caplog.records if "are damaged" in each.getMessage()]
    assert len(told) == 2


def test_a_short_object_gives_2(pair: Pair) -> None:
    path = logs_of(pair)[0]
    path.write_bytes(path.read_bytes()[:-10])
    assert error_of(pair.read(18)) == ErrorCode.CORRUPT_MESSAGE


def test_a_swapped_object_is_noticed_although_its_checksums_are_right(pair: Pair) -> None:
    foreign = SimulatedBroker()
    foreign.now_ms = 5_000
    foreign.fill(1, records=20)
    data = bytes(foreign.segments[0].log)
    path = logs_of(pair)[0]
    assert len(data) == len(path.read_bytes())
    path.write_bytes(data)
    assert error_of(pair.read(0)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("spoil", [lambda data: data[:-3], lambda data: bytes(len(data))])
def test_a_damaged_cached_index_is_fetched_anew(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(1, records=20)
    pair.assign()
    bytes_of(pair.read(0))
    for path in (tmp_path / "remote-log-index-cache").iterdir():
        path.write_bytes(spoil(path.read_bytes()))
    indexes = pair.reads.indexes
    indexes._parsed.clear()
    pair.reads.chunks._chunks.clear()
    assert values_of(bytes_of(pair.read(15))).keys() >= {(1, 15)}


def test_cached_indexes_are_used_again_after_a_restart(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(1, records=20)
    pair.assign()
    bytes_of(pair.read(0))
    fetched = pair.calls(Operation.FETCH_INDEX)
    pair.reads.indexes._parsed.clear()
    from rlm.read.disk_index_cache import DiskIndexCache

    files = DiskIndexCache(Disk(), tmp_path, 1 << 20, pair.clock)
    pair.reads.indexes._files = files
    bytes_of(pair.read(19))
    assert pair.calls(Operation.FETCH_INDEX) == fetched


def index_files(root: Path) -> list[Path]:
    return sorted((root / "remote-log-index-cache").iterdir())


def test_the_bound_of_the_index_cache_changes_while_it_runs(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(3, records=20)
    pair.assign()
    for offset in (0, 20, 40):
        bytes_of(pair.read(offset))
    assert len(index_files(tmp_path)) == 6
    pair.ask(Reconfigure(replace(pair.config, index_cache_bytes=400)))
    assert 0 < sum(path.stat().st_size for path in index_files(tmp_path)) <= 400


def test_the_least_recently_used_indexes_make_room(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(3, records=20)
    pair.assign()
    bytes_of(pair.read(0))
    of_one = sum(path.stat().st_size for path in index_files(tmp_path))
    pair.ask(Reconfigure(replace(pair.config, index_cache_bytes=of_one * 5 // 2)))
    bytes_of(pair.read(20))
    pair.reads.indexes._parsed.clear()
    pair.reads.chunks._chunks.clear()
    bytes_of(pair.read(0))
    bytes_of(pair.read(40))
    assert {path.name.split("_")[0] for path in index_files(tmp_path)} == {"0", "40"}


def test_an_index_that_nobody_uses_goes_after_its_time(tmp_path: Path) -> None:
    pair = Pair(tmp_path, index_cache_ttl_ms=100_000)
    pair.log.fill(3, records=20)
    pair.assign()
    bytes_of(pair.read(0))
    pair.scheduler.advance(60_000)
    bytes_of(pair.read(40))
    pair.scheduler.advance(60_000)
    pair.pump()
    assert {path.name.split("_")[0] for path in index_files(tmp_path)} == {"40"}
    assert [one.base_offset for one in pair.reads.indexes._parsed.values()] == [40]


def test_an_index_that_is_read_from_memory_is_kept_beyond_its_time(tmp_path: Path) -> None:
    pair = Pair(tmp_path, index_cache_ttl_ms=100_000)
    pair.log.fill(2, records=20)
    pair.assign()
    bytes_of(pair.read(20))
    bytes_of(pair.read(0))
    parsed = list(pair.reads.indexes._parsed.values())
    for _ in range(3):
        bytes_of(pair.read(0))
        pair.scheduler.advance(60_000)
    assert [one.base_offset for one in parsed] == [20, 0]
    [kept] = pair.reads.indexes._parsed.values()
    assert kept is parsed[1]


def test_what_the_broker_holds_counts_until_it_is_released(tmp_path: Path) -> None:
    pair = Pair(tmp_path, chunk_cache_bytes=900)
    pair.log.fill(1, records=60)
    pair.assign()
    chunks = pair.reads.chunks
    held = [pair.read(0, max_bytes=100), pair.read(10, max_bytes=100)]
    before = bytes_of(held[1])
    assert pair.read(40, max_bytes=100, wait_ms=60).files == ()
    assert chunks.total_bytes <= 1_000
    pair.broker.tell(Released(tokens_of(held[0])))
    assert bytes_of(pair.read(40, max_bytes=100))
    assert bytes_of(held[1]) == before


class CountingDisk(Disk):
    """Knows the memory files it made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[OpenFile] = []

    def memfd(self, name: str) -> OpenFile:
        self.made.append(super().memfd(name))
        return self.made[-1]


def test_memory_of_an_evicted_chunk_is_reused_but_never_while_it_is_held(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path, chunk_cache_bytes=1_300)
    disk = CountingDisk()
    chunks = pair.reads.chunks
    chunks._disk = disk
    pair.log.fill(1, records=60)
    pair.assign()
    held = pair.read(0, max_bytes=100)
    before, got = bytes_of(held), dict[tuple[int, int], bytes]()
    for offset in [*range(0, 60, 2), *range(58, 0, -2)]:
        received = pair.read(offset, max_bytes=100)
        got |= values_of(bytes_of(received))
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
        assert chunks.total_bytes <= 1_300
    assert got == {key: value for key, value in pair.log.truth.items() if key in got}
    assert len(got) == 30
    assert bytes_of(held) == before
    assert len(disk.made) <= 4, "what is in use at a time, not what was read"


def test_a_damaged_chunk_gives_its_memory_back(pair: Pair) -> None:
    chunks = pair.reads.chunks
    for path in logs_of(pair):
        path.write_bytes(bytes(len(path.read_bytes())))
    assert error_of(pair.read(0)) == ErrorCode.CORRUPT_MESSAGE
    assert chunks.total_bytes == 0


def test_an_answer_continues_for_a_reader_that_continues(pair: Pair) -> None:
    first = pair.read(0, max_bytes=100, read_ahead_bytes=2_000).message
    assert isinstance(first, ReadAnswer)
    assert first.batch_ends == b"", "one question is no sequence"
    received = pair.read(first.next_offset, max_bytes=100, read_ahead_bytes=2_000)
    second = received.message
    assert isinstance(second, ReadAnswer)
    data = bytes_of(received)
    assert len(data) > 100
    ends, last_offsets = array("q", second.batch_ends), array("q", second.last_offsets)
    assert ends[-1] == len(data)
    assert last_offsets[-1] + 1 == second.next_offset
    assert len(ends) == len(last_offsets)
    for start, end, last in zip([0, *ends], ends, last_offsets, strict=False):
        assert max(offset for _, offset in values_of(data[start:end])) == last


def test_windows_take_no_more_than_half_of_the_cache(tmp_path: Path) -> None:
    pair = Pair(tmp_path, chunk_cache_bytes=1_700)
    pair.log.fill(1, records=60)
    pair.assign()
    answers, offset = list[Received](), 0
    while offset < 60:
        answers.append(pair.read(offset, max_bytes=100, read_ahead_bytes=600))
        answer = answers[-1].message
        assert isinstance(answer, ReadAnswer)
        assert answer.regions, offset
        pair.broker.tell(Released(tokens_of(answers[-1])))
        offset = answer.next_offset
    assert any(len(bytes_of(each)) > 100 for each in answers)
    pair.pump()
    held = [pair.read(0, max_bytes=100), pair.read(20, max_bytes=100)]
    assert pair.reads.leases.free_read_ahead_bytes("another") < 100
    following = held[1].message
    assert isinstance(following, ReadAnswer)
    answer = pair.read(following.next_offset, max_bytes=100, read_ahead_bytes=600).message
    assert isinstance(answer, ReadAnswer)
    assert answer.batch_ends == b""


def search(pair: Pair, timestamp_ms: int) -> TimestampAnswer:
    question = OffsetForTimestamp(
        *NAMES,
        pair.log.leader_epoch,
        timestamp_ms=timestamp_ms,
        log_start_offset=pair.log.log_start,
        chain=[tuple(entry) for entry in pair.log.chain],
        wait_ms=500,
    )
    answer = pair.ask(question, 600).message
    assert isinstance(answer, TimestampAnswer)
    return answer


def test_the_first_record_at_or_after_a_time_is_found(pair: Pair) -> None:
    for offset in (0, 1, 19, 20, 35, 59):
        found = search(pair, 1_000 + offset)
        assert (found.offset, found.timestamp_ms, found.offset_epoch) == (offset, 1_000 + offset, 1)
    assert search(pair, 0).offset == 0
    assert search(pair, 99_999_999).offset == -1


def test_a_time_is_not_looked_for_below_the_log_start(pair: Pair) -> None:
    pair.log.delete_records(25)
    assert search(pair, 0).offset == 25


def test_a_slow_store_ends_a_time_search_with_7(pair: Pair) -> None:
    pair.workers.held.add("remote-reader")
    assert search(pair, 1_030).error == ErrorCode.REQUEST_TIMED_OUT


def test_chain_and_producer_snapshot_are_given_to_a_follower(pair: Pair) -> None:
    answer = pair.ask(AuxiliaryState(*NAMES, 1, offset=25, epoch=1)).message
    assert answer == AuxiliaryStateAnswer(
        *NAMES, 1, chain=[(1, 0)], producer_snapshot=SNAPSHOT, end_offset=40
    )


def test_a_follower_does_not_begin_at_a_segment_that_ends_off_the_chain(pair: Pair) -> None:
    """The leader has other records from 30 on: the one from 20 to 39 is of another lineage."""
    question = AuxiliaryState(*NAMES, 1, offset=25, epoch=1, above=[(2, 30)])
    with pytest.raises(LinkFailureError, match="no copied segment that ends on the leader's chain"):
        pair.ask(question)
    stamp = pair.metadata.log[-1][0].stamp
    first = next(iter(pair.metadata.list_segments(PARTITION)))
    for name, end, state in ((b"a" * 16, 29, 1), (b"b" * 16, 28, 1), (b"c" * 16, 27, 0)):
        again = replace(
            first,
            id=replace(first.id, id=name),
            start_offset=20,
            end_offset=end,
            leader_epochs=(EpochEntry(1, 20),),
            state=SegmentState.COPY_SEGMENT_STARTED,
        )
        pair.metadata.land(SegmentAdded(again, stamp))
        if state:
            finished = SegmentUpdate(again.id, SegmentState.COPY_SEGMENT_FINISHED, 1, 1)
            pair.metadata.land(SegmentUpdated(finished, stamp))
    fetch = pair.storage.fetch_index
    pair.storage.fetch_index = lambda _, kind: fetch(first, kind)  # type: ignore[method-assign]
    answer = pair.ask(question).message
    assert isinstance(answer, AuxiliaryStateAnswer)
    assert answer.end_offset == 30, "of several the one that was finished first"
    on = pair.ask(AuxiliaryState(*NAMES, 1, offset=25, epoch=1, above=[(2, 40)])).message
    assert isinstance(on, AuxiliaryStateAnswer)
    assert on.end_offset == 40


def test_a_follower_gets_no_chain_from_metadata_that_is_not_up_to_date(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind: Future[None] = Future()
    behind.set_exception(MetadataNotReadyError("the log does not tell its end"))
    monkeypatch.setattr(pair.metadata, "catch_up", lambda partition: behind)
    with pytest.raises(LinkFailureError, match="not caught up"):
        pair.ask(AuxiliaryState(*NAMES, 1, offset=25, epoch=1))


def test_a_follower_that_waits_for_metadata_in_vain_leaves_nothing_behind(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Future[None]] = []

    def catch_up(_partition: object) -> Future[None]:
        asked.append(Future())
        return asked[-1]

    monkeypatch.setattr(pair.metadata, "catch_up", catch_up)
    for _ in range(3):
        answer = pair.broker.ask(AuxiliaryState(*NAMES, 1, offset=25, epoch=1, wait_ms=500))
        pair.pump()
        pair.scheduler.advance(499)
        pair.pump()
        assert not answer.done()
        pair.scheduler.advance(1)
        pair.pump()
        assert "not caught up" in str(answer.exception(0))
    assert len(asked) == 1
    asked[0].set_result(None)
    pair.pump()
    assert len(asked) == 1, "nobody waits for a second one"


def test_only_what_the_own_lineage_aborted_is_named(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(2, records=20)
    pair.assign()
    stamp = pair.metadata.log[-1][0].stamp
    copied = next(iter(pair.metadata.list_segments(PARTITION)))
    entry = txn_index.AbortedTransaction(9, 2, 10, 11)
    indexes = {}
    for name, epoch, producer in ((b"0" * 16, 7, 5), (b"a" * 16, 1, 9), (b"b" * 16, 1, 9)):
        metadata = replace(
            copied,
            id=replace(copied.id, id=name),
            txn_index_empty=False,
            leader_epochs=(EpochEntry(epoch, 0),),
            state=SegmentState.COPY_SEGMENT_STARTED,
        )
        indexes[name] = txn_index.pack_entry(entry._replace(producer_id=producer))
        pair.metadata.land(SegmentAdded(metadata, stamp))
        finished = SegmentUpdate(metadata.id, SegmentState.COPY_SEGMENT_FINISHED, 1, 1)
        pair.metadata.land(SegmentUpdated(finished, stamp))
    fetch = pair.storage.fetch_index

    def fetch_index(metadata: RemoteLogSegmentMetadata, kind: IndexType) -> BinaryIO:
        if kind is IndexType.TRANSACTION:
            return io.BytesIO(indexes[metadata.id.id])
        return fetch(metadata, kind)

    pair.storage.fetch_index = fetch_index  # type: ignore[method-assign]
    question = Read(
        *NAMES,
        1,
        offset=0,
        offset_epoch=1,
        epoch_end=40,
        max_bytes=10_000,
        min_one_batch=True,
        read_committed=True,
        wait_ms=500,
        holder="one",
        chain=[(1, 0)],
    )
    answer = pair.ask(question, 500).message
    assert isinstance(answer, ReadAnswer)
    assert answer.regions
    assert answer.aborted == [(9, 2)]
