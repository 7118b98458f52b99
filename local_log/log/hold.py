"""Local segments that a leader keeps for followers after their local retention.

A follower below the local log start gets that offset, builds its state from the remote tier up to
there, and fetches from there on. If those segments were deleted meanwhile, it would be sent to the
remote tier again, without end. So the leader holds them for a while.

A hold applies to local retention only. Total retention and DeleteRecords raise the log start and
override it; so does a disk that fills up. DIFFERS: Apache Kafka has no hold.

A hold pauses for its length after `TIMES_MAX` times its length. So a follower that asks repeatedly
and never catches up cannot keep a log permanently.
"""

import logging
from pathlib import Path
from typing import Final

from local_log.config import LONG_MAX
from runtime.disk import Disk
from runtime.log_context import limited

log = logging.getLogger(__name__)

TIMES_MAX: Final = 6
FREE_SHARE_MIN: Final = 0.1
"""Minimum free part of the file system; below it nothing is held."""


class LocalHold:
    """The hold of one log; on the loop, except `look_at_disk`.

    Attributes:
        is_disk_short: The last check found less than `FREE_SHARE_MIN` free.
    """

    __slots__ = ("_held", "_since_ms", "is_disk_short")

    def __init__(self) -> None:
        self._held: tuple[int, int] | None = None  # start offset and end time, read as one
        self._since_ms = 0
        self.is_disk_short = False

    def begin(self, start_offset: int, *, now_ms: int, for_ms: int) -> None:
        """Hold the segments that end above `start_offset`; for 0 ms: none.

        A lower start of an earlier hold that has not ended is kept.
        """
        if for_ms <= 0:
            return
        if self._held is None or now_ms >= self._held[1] + for_ms:
            self._since_ms = now_ms
        until_ms = min(now_ms + for_ms, self._since_ms + TIMES_MAX * for_ms)
        if until_ms > now_ms:
            self._held = (min(start_offset, self.start_at(now_ms)), until_ms)

    def end(self) -> None:
        """End the hold."""
        self._held = None

    def start_at(self, now_ms: int) -> int:
        """Return the offset from which segments are held, by the wall clock; LONG_MAX: none."""
        if self._held is None:
            return LONG_MAX
        start_offset, until_ms = self._held
        return start_offset if now_ms < until_ms else LONG_MAX

    def kept_from(self, now_ms: int) -> int:
        """Return `start_at`, or LONG_MAX while the disk is short."""
        return LONG_MAX if self.is_disk_short else self.start_at(now_ms)

    def look_at_disk(self, disk: Disk, directory: Path, now_ms: int) -> None:
        """Check the free space of a log's directory if segments are held; on a pool thread.

        If the check fails, the disk counts as short. A full disk takes all its logs offline, while
        a follower without a hold only builds its state again.
        """
        if self.start_at(now_ms) == LONG_MAX:
            self.is_disk_short = False
            return
        try:
            free = disk.free_bytes(directory)
            is_short = free < FREE_SHARE_MIN * disk.total_bytes(directory)
            reason = f"{free} bytes are free"
        except OSError as error:
            is_short, reason = True, f"free space is unknown: {error}"
        if is_short and not self.is_disk_short:
            text = f"disk is short, nothing is held for followers: directory={directory}: {reason}"
            limited.warning(log, text, directory.parent)  # of all its logs
        self.is_disk_short = is_short
