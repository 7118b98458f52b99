"""What a plugin may ask of the tier: room for its custom metadata, and time until reads see it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from kafka_protocol.errors import ErrorCode
from rlm.link.messages import Health, ReadAnswer
from rlm.workers import READER_POOL
from rsm_plugins.api import RemoteResourceNotFoundError, RemoteStorageManager
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata, SegmentState
from rsm_plugins.testing import Operation
from tests.support.tier.log_in_memory import PARTITION, values_of
from tests.support.tier.pair import Pair, bytes_of, error_of


class AskingStorage(RemoteStorageManager):
    """Asks that some bytes be kept for it, and says what came back with its calls."""

    def __init__(self, inner: RemoteStorageManager, size_bytes: int) -> None:
        self._inner, self._custom = inner, b"x" * size_bytes
        self.handed_back: dict[str, bytes | None] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        self._inner.configure(configs)

    def _own(self, call: str, metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        self.handed_back[call] = metadata.custom_metadata
        return replace(metadata, custom_metadata=None)

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes:
        self._inner.copy_log_segment_data(metadata, data)
        return self._custom

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        own = self._own("fetch", metadata)
        return self._inner.fetch_log_segment(own, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        return self._inner.fetch_index(self._own("index", metadata), index_type)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._inner.delete_log_segment_data(self._own("delete", metadata))

    def close(self) -> None:
        self._inner.close()


def with_custom_metadata(pair: Pair, size_bytes: int) -> AskingStorage:
    asking = AskingStorage(pair.storage._inner, size_bytes)
    pair.storage._inner = asking
    return asking


def objects(pair: Pair) -> list[Path]:
    return [path for path in pair.store.rglob("*") if path.is_file()]


def test_k405_17_128_bytes_of_custom_metadata_are_kept(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    asking, kept = with_custom_metadata(pair, 128), b"x" * 128
    pair.log.fill(1, records=20)
    pair.assign()
    assert pair.log.copied == 19
    (segment,) = pair.metadata.list_segments(PARTITION)
    assert segment.state is SegmentState.COPY_SEGMENT_FINISHED
    assert segment.custom_metadata == kept
    assert bytes_of(pair.read(0))
    pair.log.delete_records(20)
    pair.scheduler.advance(31_000)
    pair.pump()
    assert asking.handed_back == {"fetch": kept, "index": kept, "delete": kept}


def test_k405_17_129_bytes_fail_the_copy_and_what_it_copied_is_deleted(tmp_path: Path) -> None:
    pair = Pair(tmp_path, copy_max_ms=5_000)
    with_custom_metadata(pair, 129)
    pair.log.fill(1, records=20)
    pair.assign()
    assert pair.log.copied == -1
    pair.scheduler.advance(1_000)
    health = [each for each in pair.told if isinstance(each, Health)][-1]
    assert any("custom metadata of 129 bytes" in each.reason for each in health.unhealthy)
    calls = pair.storage.calls
    tried = {call.metadata.id.id for call in calls if call.operation is Operation.COPY}
    deleted = {call.metadata.id.id for call in calls if call.operation is Operation.DELETE}
    assert tried
    assert tried <= deleted
    assert objects(pair) == []
    assert pair.log.segments[0].base_offset == 0, "the local records are the only ones"


def test_k405_17_the_limit_is_a_setting(tmp_path: Path) -> None:
    pair = Pair(tmp_path, custom_metadata_bytes_max=200)
    with_custom_metadata(pair, 200)
    pair.log.fill(1, records=20)
    pair.assign()
    assert pair.log.copied == 19


@pytest.mark.parametrize("hidden", [1, 2, 5])
def test_k405_93_a_store_that_shows_objects_late_is_enough(tmp_path: Path, hidden: int) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(3, records=20)
    pair.assign()
    pair.log.expire_local()
    pair.storage.fail_next(Operation.FETCH, RemoteResourceNotFoundError("not here yet"), hidden)
    assert pair.log.local_start == 60
    got, codes, offset = dict[tuple[int, int], bytes](), list[int](), 0
    for _ in range(200):
        if offset >= 60:
            break
        received = pair.read(offset, wait_ms=50)
        assert isinstance(received.message, ReadAnswer)
        codes.append(error_of(received))
        if not received.message.regions:
            pair.scheduler.advance(500)
            pair.pump()
            continue
        got |= values_of(bytes_of(received))
        offset = received.message.next_offset
    assert got == {key: value for key, value in pair.log.truth.items() if key[1] < 60}
    assert set(codes) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert hidden < 5 or ErrorCode.KAFKA_STORAGE_ERROR in codes, "retriable, whoever asked"


def test_k405_93_a_look_up_by_time_waits_for_it_too(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(2, records=20)
    pair.assign()
    pair.storage.fail_next(Operation.FETCH, RemoteResourceNotFoundError("not here yet"), 2)
    assert bytes_of(pair.read(25, wait_ms=5_000))


def test_k405_48_a_full_queue_lets_a_read_wait_and_fails_none(tmp_path: Path) -> None:
    pair = Pair(tmp_path, reader_threads=1, reader_pending_max=1)
    pair.log.fill(5, records=20)
    pair.assign()
    pair.workers.held.add(READER_POOL)
    for offset in (0, 20):
        assert error_of(pair.read(offset, wait_ms=20)) == ErrorCode.NONE
    assert pair.workers.queued(READER_POOL) == 2
    third = pair.read(40, wait_ms=20)
    assert (error_of(third), third.files) == (ErrorCode.NONE, ())
    assert pair.workers.queued(READER_POOL) == 2, "it was not queued, it waited"
    pair.workers.held.clear()
    pair.pump()
    assert bytes_of(pair.read(40))
