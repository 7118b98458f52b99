"""Promises of `delete_log_segment_data`: everything of one segment, and nothing else."""

from dataclasses import replace

from rsm_plugins.api import (
    RemoteStorageError,
    RemoteStorageManager,
)
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import LOG_BYTES, BreakingFile, segment_data
from rsm_plugins.segment import IndexType


class DeletePromises(Promises):
    """What a deletion leaves."""

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
