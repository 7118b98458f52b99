"""Promises about many threads: all methods are called from many at once."""

from collections.abc import Callable
from functools import partial

from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import INDEX_BYTES, LOG_BYTES, copy, read
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata

_THREADS = 8
_LIVES = 6
_READS = 12


class ThreadPromises(Promises):
    """Promises about calls from many threads at once."""

    def test_many_threads_at_once(self, manager: RemoteStorageManager) -> None:
        """Threads that copy, read and delete segments of their own do not disturb each other."""

        def lives(thread: int) -> Callable[[], None]:
            def run() -> None:
                for life in range(_LIVES):
                    number = 1 + thread * _LIVES + life
                    # Two threads a partition: its directory is often empty, and an empty one may be
                    # removed.
                    metadata = self.segment(
                        number, start_offset=number * 100, partition=thread // 2
                    )
                    copied = self.copied(manager, metadata)
                    last = number + 9
                    expect.reads(
                        partial(manager.fetch_log_segment, copied, number, last),
                        LOG_BYTES[number : last + 1],
                        f"bytes [{number}, {last}] among {_THREADS} threads",
                    )
                    manager.delete_log_segment_data(copied)
                    self.is_gone(manager, copied, "a segment deleted among threads")

            return run

        self._together([lives(thread) for thread in range(_THREADS)])

    def test_many_readers_of_one_segment(self, manager: RemoteStorageManager) -> None:
        """Threads that read one large segment at once each get exactly their bytes."""
        copied, log = self.large(manager)
        step = len(log) // (_THREADS * _READS)

        def reader(thread: int) -> Callable[[], None]:
            def run() -> None:
                for number in range(_READS):
                    first = (number * _THREADS + thread) * step
                    expect.reads(
                        partial(manager.fetch_log_segment, copied, first, first + step - 1),
                        log[first : first + step],
                        f"bytes [{first}, {first + step - 1}] among {_THREADS} readers",
                    )

            return run

        self._together([reader(thread) for thread in range(_THREADS)])

    def test_one_segment_copied_read_and_deleted_at_once(
        self, manager: RemoteStorageManager
    ) -> None:
        """A reader gets, while others copy and delete the segment, its bytes or an error."""
        metadata = self.segment()
        known = self.copied(manager, metadata)
        rounds = range(_READS)

        def tolerant(call: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                for _ in rounds:
                    try:
                        call()
                    except RemoteStorageError:
                        continue  # others interfere, and the plugin reports it

            return run

        def copies() -> None:
            copy(manager, metadata)

        def deletes() -> None:
            manager.delete_log_segment_data(known)

        def reads() -> None:
            got = read(manager.fetch_log_segment(known, 10, 4_999))
            expect.same_bytes(got, LOG_BYTES[10:5_000], "a segment that others copy and delete")

        def reads_index() -> None:
            got = read(manager.fetch_index(known, IndexType.OFFSET))
            expect.same_bytes(got, INDEX_BYTES[IndexType.OFFSET], "an index that others delete")

        calls = [copies, copies, deletes, reads, reads, reads_index]
        self._together([tolerant(call) for call in calls])
        self._settles(manager, known)

    def _settles(self, manager: RemoteStorageManager, known: RemoteLogSegmentMetadata) -> None:
        manager.delete_log_segment_data(known)
        self.is_gone(manager, known, "a segment deleted when all had ended")

    def _together(self, calls: list[Callable[[], None]]) -> None:
        expect.together(calls, deadline_s=self.deadline_s, what=f"one of {len(calls)} threads")
