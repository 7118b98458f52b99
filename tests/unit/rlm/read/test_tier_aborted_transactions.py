"""Which aborted transactions an answer from the tier names: those of later segments, too."""

from pathlib import Path

import pytest

from kafka_protocol.files.txn_index import AbortedTransaction, pack_entry
from rlm.link.messages import Read, ReadAnswer
from rlm.read.disk_index_cache import DiskIndexCache
from rlm.read.loads import Wait, Waiter
from rlmm.api import RemoteLogMetadataManager
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from rsm_plugins.testing import segment
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import NAMES, Pair, bytes_of


def tiered(root: Path, *transactions: AbortedTransaction) -> Pair:
    """Three segments of 20 records, all copied; each with the transactions whose marker it has."""
    pair = Pair(root, chunk_bytes=100_000)
    for entry in transactions:
        base = entry.last_offset // 20 * 20
        pair.log.aborted[base] = pair.log.aborted.get(base, b"") + pack_entry(entry)
    pair.log.fill(3, records=20)
    pair.assign()
    return pair


def aborted_from(pair: Pair, offset: int) -> list[tuple[int, int]]:
    """What an answer names that reaches to the end of the segment."""
    question = Read(
        *NAMES,
        pair.log.leader_epoch,
        offset=offset,
        offset_epoch=1,
        epoch_end=60,
        max_bytes=100_000,
        min_one_batch=True,
        read_committed=True,
        wait_ms=500,
        holder="one",
        chain=[(1, 0)],
    )
    received = pair.ask(question, 500)
    assert isinstance(received.message, ReadAnswer)
    offsets = sorted(each for _, each in values_of(bytes_of(received)))
    assert offsets == list(range(offset, offset // 20 * 20 + 20))
    return sorted(received.message.aborted)


@pytest.mark.parametrize("marker", [10, 30, 50])
@pytest.mark.parametrize("knows_aborts", [True, False])
def test_a_transaction_is_named_with_its_data_wherever_its_marker_lies(
    tmp_path: Path, marker: int, knows_aborts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not knows_aborts:
        walk = RemoteLogMetadataManager.aborting_segments
        monkeypatch.setattr(InMemoryRemoteLogMetadataManager, "aborting_segments", walk)
    pair = tiered(tmp_path, AbortedTransaction(9, 2, marker, marker + 1))
    assert aborted_from(pair, 0) == [(9, 2)]
    assert aborted_from(pair, 20) == ([(9, 2)] if marker >= 20 else [])


def test_a_read_walks_no_segments_in_which_nothing_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = tiered(tmp_path, AbortedTransaction(9, 2, 50, 51))
    asked = list[bytes]()
    indexes = pair.reads._reader.indexes.transactions

    def counted(metadata: RemoteLogSegmentMetadata, waiter: Waiter, reader: str) -> bytes | Wait:
        asked.append(metadata.id.id)
        return indexes(metadata, waiter, reader)

    def walked(*_: object) -> None:
        raise AssertionError("all segments are listed for a read")

    monkeypatch.setattr(pair.reads._reader.indexes, "transactions", counted)
    monkeypatch.setattr(pair.metadata, "list_segments", walked)
    assert aborted_from(pair, 0) == [(9, 2)]
    assert len(set(asked)) == 1


def test_a_transaction_that_begins_behind_an_answer_is_not_named_in_it(tmp_path: Path) -> None:
    later, open_for_long = AbortedTransaction(7, 25, 28, 2), AbortedTransaction(9, 2, 30, 31)
    pair = tiered(tmp_path, later, open_for_long)
    assert aborted_from(pair, 0) == [(9, 2)]
    assert aborted_from(pair, 20) == [(7, 25), (9, 2)]
    assert aborted_from(pair, 40) == []


@pytest.mark.parametrize("kind", [IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION])
def test_copies_that_begin_at_one_offset_have_index_files_of_their_own(
    tmp_path: Path, kind: IndexType
) -> None:
    """Of partitions of one topic, or of two lineages; no log tells their transactions apart."""
    copies = {number: b"index of %d" % number for number in (1, 2)}
    fetched: list[int] = []

    def read(cache: DiskIndexCache, number: int) -> bytes:
        def fetch() -> bytes:
            fetched.append(number)
            return copies[number]

        return cache.get(segment(number), kind, fetch, past_cache=False)

    for _ in range(2):  # and once more in the next process
        cache = DiskIndexCache(Disk(), tmp_path, 1 << 20, ManualClock())
        for number in (1, 2, 1, 2):
            assert read(cache, number) == copies[number]
    assert fetched == [1, 2]
