"""Promises of `copy_log_segment_data`: whole, repeatable, and invisible until it is done."""

import io
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO
from unittest import SkipTest

from rsm_plugins.api import (
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
    StoredObject,
)
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import INDEX_BYTES, LOG_BYTES, BreakingFile, segment_data
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata

_PARTS = {
    "log": LOG_BYTES,
    "offset_index": INDEX_BYTES[IndexType.OFFSET],
    "time_index": INDEX_BYTES[IndexType.TIMESTAMP],
    "transaction_index": INDEX_BYTES[IndexType.TRANSACTION],
    "producer_snapshot": INDEX_BYTES[IndexType.PRODUCER_SNAPSHOT],
}


class CopyPromises(Promises):
    """Promises about copies."""

    def test_a_copied_segment_reads_back_byte_for_byte(self, manager: RemoteStorageManager) -> None:
        """A copied segment reads back byte for byte."""
        copied = self.copied(manager)
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "the whole log")

    def test_a_large_segment_reads_back_byte_for_byte(self, manager: RemoteStorageManager) -> None:
        """A segment of many MiB reads back byte for byte."""
        copied, log = self.large(manager)
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), log, "the whole large log")

    def test_a_segment_of_one_byte_is_a_segment(self, manager: RemoteStorageManager) -> None:
        """A segment of one byte is a segment."""
        copied = self.copied(manager, self.segment(size_bytes=1), segment_data(b"x"))
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), b"x", "the log of one byte")
        expect.reads(lambda: manager.fetch_log_segment(copied, 0, 0), b"x", "its bytes [0, 0]")

    def test_copy_twice_under_one_id_is_harmless(self, manager: RemoteStorageManager) -> None:
        """Copying again under the same id is harmless, and one deletion removes it."""
        self.copied(manager)
        copied = self.copied(manager)
        expect.reads(
            lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "the log copied twice"
        )
        for kind, body in INDEX_BYTES.items():
            expect.reads(partial(manager.fetch_index, copied, kind), body, f"index {kind.value}")
        manager.delete_log_segment_data(copied)
        self.is_gone(manager, copied, "copied twice and deleted once")

    def test_a_copy_that_failed_half_way_can_be_repeated(
        self, manager: RemoteStorageManager
    ) -> None:
        """A copy that failed half way can be repeated under the same id."""
        broken = replace(segment_data(), log=BreakingFile(LOG_BYTES, after=1_000))
        self._fails(manager, self.segment(), broken, "a copy whose log breaks")
        copied = self.copied(manager)
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "the repeated copy")

    def test_a_half_copy_is_not_readable(self, manager: RemoteStorageManager) -> None:
        """Wherever a copy breaks, in the log or in any index, nothing of it can be read."""
        number = 0
        for part, body in _PARTS.items():
            for after in sorted({0, len(body) // 2, len(body) - 1}):
                number += 1
                where = f"a copy that broke at byte {after} of {part}"
                metadata = self.segment(number)
                parts: dict[str, Any] = {part: BreakingFile(body, after=after)}
                self._fails(manager, metadata, replace(segment_data(), **parts), where)
                self.is_gone(manager, metadata, where)

    def test_a_large_half_copy_is_not_readable(self, manager: RemoteStorageManager) -> None:
        """A copy that breaks after many MiB leaves nothing readable, and can be repeated."""
        size = self.large_segment_bytes
        metadata = self.segment(size_bytes=size)
        data = replace(segment_data(), log=BreakingFile(bytes(size), after=size - size // 4))
        self._fails(manager, metadata, data, "a large copy that broke at three quarters")
        self.is_gone(manager, metadata, "a large copy that broke at three quarters")
        copied, log = self.large(manager)
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), log, "the repeated large copy")

    def test_a_copy_cut_between_its_objects_is_not_readable(
        self, manager: RemoteStorageManager
    ) -> None:
        """A store that dies between two objects of a copy leaves nothing readable."""
        if not isinstance(manager, LayoutStorageManager):
            raise SkipTest("only for plugins on LayoutStorageManager: others write what they like")
        whole = manager._opened
        assert whole is not None
        for puts in range(3):
            metadata = self.segment(puts + 1)
            where = f"a copy whose store died after {puts} objects"
            manager._opened = _DyingStore(whole, puts)
            try:
                self._fails(manager, metadata, segment_data(), where)
            finally:
                manager._opened = whole
            self.is_gone(manager, metadata, where)
            copied = self.copied(manager, metadata)
            expect.reads(partial(manager.fetch_log_segment, copied, 0), LOG_BYTES, "the repeat")

    def test_a_log_of_another_size_than_announced_is_refused(
        self, manager: RemoteStorageManager
    ) -> None:
        """A log that is longer or shorter than the metadata says is refused, not kept."""
        for number, differs in enumerate((1, -1), start=1):
            metadata = self.segment(number, size_bytes=len(LOG_BYTES) + differs)
            what = f"a log of {len(LOG_BYTES)} bytes announced as {metadata.segment_size_bytes}"
            expect.fails(
                RemoteStorageError,
                partial(manager.copy_log_segment_data, metadata, segment_data()),
                what,
            )
            self.is_gone(manager, metadata, what)

    def test_a_copy_leaves_the_files_open(self, manager: RemoteStorageManager) -> None:
        """The files handed to a copy are still open after it."""
        data = segment_data()
        self.copied(manager, data=data)
        expect.that(not any(part.closed for part in data.files()), "the copy closed a file")

    def test_files_are_copied_from_their_begin(self, manager: RemoteStorageManager) -> None:
        """Files are copied from their first byte, wherever they stand."""
        data = segment_data()
        for part in data.files():
            part.read(3)
        copied = self.copied(manager, data=data)
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "the log")
        kind = IndexType.OFFSET
        expect.reads(lambda: manager.fetch_index(copied, kind), INDEX_BYTES[kind], "the index")

    def test_real_files_are_copied(self, manager: RemoteStorageManager) -> None:
        """Real files are copied, buffered or not."""
        with tempfile.TemporaryFile("w+b", buffering=0) as raw, tempfile.TemporaryFile() as index:
            raw.write(LOG_BYTES)
            index.write(b"as written")
            copied = self.copied(manager, data=replace(segment_data(), log=raw, offset_index=index))
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "the log")
        expect.reads(lambda: manager.fetch_index(copied, IndexType.OFFSET), b"as written", "index")

    # ------------------------------------------------------------------ inside

    def _fails(
        self,
        manager: RemoteStorageManager,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        what: str,
    ) -> None:
        expect.fails(
            (RemoteStorageError, OSError),
            lambda: manager.copy_log_segment_data(metadata, data),
            what,
        )


class _DyingStore(ObjectStore):
    """A store that accepts a number of objects, and then fails."""

    def __init__(self, inner: ObjectStore, puts: int) -> None:
        self._inner, self._puts = inner, puts

    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        """Write until the store has failed."""
        if not self._puts:
            raise RetriableRemoteStorageError("the store died between two objects")
        self._puts -= 1
        return self._inner.put(key, source)

    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        """Delegated to the wrapped store."""
        return self._inner.get(key, first, last)

    def delete(self, keys: Sequence[str]) -> None:
        """Delegated to the wrapped store."""
        self._inner.delete(keys)

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Delegated to the wrapped store."""
        return self._inner.list_objects(prefix)

    def close(self) -> None:
        """Left to the plugin."""


class DeletePromises(Promises):
    """Promises about deletions."""

    def test_what_was_never_copied_is_not_found(self, manager: RemoteStorageManager) -> None:
        """A segment that was never copied is not found."""
        self.is_gone(manager, self.segment(), "a segment that was never copied")

    def test_a_deleted_segment_is_gone(self, manager: RemoteStorageManager) -> None:
        """Nothing of a deleted segment can be read, also if it was read before."""
        copied = self.copied(manager)
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "the log")
        manager.fetch_index(copied, IndexType.OFFSET).close()
        manager.delete_log_segment_data(copied)
        self.is_gone(manager, copied, "a deleted segment")

    def test_delete_twice_is_fine(self, manager: RemoteStorageManager) -> None:
        """Deleting twice succeeds twice."""
        copied = self.copied(manager)
        manager.delete_log_segment_data(copied)
        manager.delete_log_segment_data(copied)

    def test_delete_of_what_never_was_is_fine(self, manager: RemoteStorageManager) -> None:
        """Deleting what was never copied succeeds."""
        manager.delete_log_segment_data(self.segment())

    def test_delete_after_a_half_copy_leaves_nothing(self, manager: RemoteStorageManager) -> None:
        """A half copy can be deleted, by metadata that knows nothing of it."""
        data = replace(segment_data(), log=BreakingFile(LOG_BYTES, after=1_000))
        metadata = self.segment()
        expect.fails(
            (RemoteStorageError, OSError),
            lambda: manager.copy_log_segment_data(metadata, data),
            "a copy whose log breaks",
        )
        manager.delete_log_segment_data(metadata)
        self.is_gone(manager, metadata, "a deleted half copy")

    def test_delete_leaves_other_segments_alone(self, manager: RemoteStorageManager) -> None:
        """Deleting a segment leaves another one of the same offsets alone."""
        one, two = (self.copied(manager, self.segment(number)) for number in (1, 2))
        manager.delete_log_segment_data(one)
        expect.reads(lambda: manager.fetch_log_segment(two, 0), LOG_BYTES, "the other segment")
        self.is_gone(manager, one, "the deleted one of two")
