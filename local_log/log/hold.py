"""Local segments that a leader keeps for followers, although their local retention is over.

A follower below the local log start is told that start, builds its state from the remote tier up
to there, and fetches from there on. If the segments from there on went meanwhile, it would be sent
back to the tier again and again. So the leader holds them for a while.

A hold keeps segments from local retention alone. The total retention and DeleteRecords raise the
log start, and go before it; so does a disk that fills.
DIFFERS: Apache Kafka holds nothing.

A follower that asks again and again, and never gets there, does not keep a log for ever: after
`TIMES_MAX` times the hold's length it pauses as long as a hold lasts.
"""

import logging
from pathlib import Path
from typing import Final

from local_log.config import LONG_MAX
from runtime.disk import Disk
from runtime.disk_errors import Seldom

log = logging.getLogger(__name__)

TIMES_MAX: Final = 6
FREE_SHARE_MIN: Final = 0.1
"""Nothing is held while less of the log directory's file system is free."""
short_disks: Final = Seldom()
"""A disk is short for all logs on it: one line a minute tells an operator enough."""


class LocalHold:
    """See the module; one for each log, on the loop, but for `look_at_disk`.

    Attributes:
        is_disk_short: the last look at the disk found less than `FREE_SHARE_MIN` free.
    """

    __slots__ = ("_held", "_since_ms", "is_disk_short")

    def __init__(self) -> None:
        self._held: tuple[int, int] | None = None  # start and end of the time: read as one
        self._since_ms = 0
        self.is_disk_short = False

    def begin(self, start_offset: int, *, now_ms: int, for_ms: int) -> None:
        """Hold the segments that end above `start_offset`; for 0 ms: none.

        An earlier hold that is not over keeps its start where that is lower.
        """
        if for_ms <= 0:
            return
        if self._held is None or now_ms >= self._held[1] + for_ms:
            self._since_ms = now_ms
        until_ms = min(now_ms + for_ms, self._since_ms + TIMES_MAX * for_ms)
        if until_ms > now_ms:
            self._held = (min(start_offset, self.start_at(now_ms)), until_ms)

    def end(self) -> None:
        """Hold nothing any more."""
        self._held = None

    def start_at(self, now_ms: int) -> int:
        """Say from which offset on segments are held, by the wall clock; LONG_MAX: none are."""
        if self._held is None:
            return LONG_MAX
        start_offset, until_ms = self._held
        return start_offset if now_ms < until_ms else LONG_MAX

    def kept_from(self, now_ms: int) -> int:
        """As `start_at`, but nothing is kept while the disk is short."""
        return LONG_MAX if self.is_disk_short else self.start_at(now_ms)

    def look_at_disk(self, disk: Disk, directory: Path, now_ms: int) -> None:
        """Ask the disk of a log's directory, if segments are held; on a pool thread.

        A disk that does not answer is short: a full one would take all logs of it offline, and
        without a hold a follower builds its state once more.
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
            short_disks.warning(log, text)
        self.is_disk_short = is_short
