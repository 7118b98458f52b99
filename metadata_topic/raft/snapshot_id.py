"""Which snapshot of the metadata log."""

from typing import Final, NamedTuple

SUFFIX: Final = ".checkpoint"


class SnapshotId(NamedTuple):
    """Which snapshot: the first offset not in it (exclusive end) and the epoch before that."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """Its file's name."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP_ID: Final = SnapshotId(0, 0)
"""The one of the format step; it is never sent."""
