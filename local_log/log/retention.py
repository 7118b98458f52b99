"""The old end of a log: what has expired is decided on, taken out, renamed and unlinked.

In this order a kill between any two steps leaves nothing wrong: the log start is raised in memory
(`expire`), made durable by the caller, and only then segments go.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from local_log.config import LogConfig
from local_log.log.parts import LogParts
from local_log.log.results import Expiry, RetentionResult
from local_log.log.retention_policy import RetentionDecision, RetentionFacts, SegmentFacts, decide
from local_log.segment.segment import LogSegment

log = logging.getLogger(__name__)


class LogRetention:
    """Lets the oldest segments of one log go.

    Args:
        roll_at: closes the active segment and begins a new one at the log end, at this time.
    """

    __slots__ = ("_config", "_parts", "_roll_at")

    def __init__(
        self, parts: LogParts, config: LogConfig, *, roll_at: Callable[[int, int], None]
    ) -> None:
        self._parts, self._config, self._roll_at = parts, config, roll_at

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings."""
        self._config = config

    def learn_ages(self, now_ms: int) -> None:
        """Read what `expire` will ask of the disk; on a pool thread.

        Raises:
            LogClosed, KafkaStorageError: as `LogSegments.on_a_copy`.
        """
        if self._parts.health.failure is None:
            self._parts.segments.on_a_copy(lambda segments: self._decide(segments, now_ms))

    def expire(self, now_ms: int, *, release_copied: bool = False) -> Expiry | None:
        """Decide what has expired, see `retention`, and raise the log start over it in memory.

        The caller makes the new log start durable (`flush` up to it, then its checkpoint) before it
        calls `drop`.

        Args:
            now_ms: wall clock.
            release_copied: whatever is copied is to go from here, as if its local retention were
                over; the total retention holds nevertheless.

        Returns:
            What is to go; None if nothing is, and nothing was done.

        Raises:
            KafkaStorageError: the disk failed.
        """
        if self._parts.health.failure is not None or self._parts.cleaning.is_running:
            return None
        ends, segments = self._parts.ends, self._parts.segments
        try:
            decision = self._decide(segments.all, now_ms, release_copied=release_copied)
            if decision.roll_active:
                self._roll_at(ends.log_end_offset, now_ms)
        except OSError as error:
            self._parts.health.fail(error)
        count = len(decision.drop)
        if not count:
            return Expiry((), ends.log_start_offset, rolled=True) if decision.roll_active else None
        if decision.raises_log_start:
            ends.expire_below(segments.bases[count])
        dropped = tuple(zip(segments.bases[:count], decision.drop, strict=True))
        return Expiry(dropped, ends.log_start_offset, decision.roll_active)

    def _decide(
        self, segments: Sequence[LogSegment], now_ms: int, *, release_copied: bool = False
    ) -> RetentionDecision:
        ends, config = self._parts.ends, self._config
        if release_copied and config.copies_to_remote:
            config = replace(config, local_retention_bytes=0)
        facts = RetentionFacts(
            ends.log_start_offset, ends.high_watermark, ends.copied_through, now_ms
        )
        of_segments = FactsOfSegments(segments, ends.log_end_offset)
        return decide(of_segments, facts, config, size_bytes=self._parts.segments.size_bytes)

    def retain(self, now_ms: int) -> RetentionResult:
        """Drop what has expired, where nobody keeps a checkpoint of log starts.

        Raises:
            KafkaStorageError: the disk failed.
        """
        expiry = self.expire(now_ms)
        return self.drop(expiry or Expiry((), self._parts.ends.log_start_offset, rolled=False))

    def drop(self, expiry: Expiry) -> RetentionResult:
        """Take expired segments out, rename their files now and unlink them later.

        Raises:
            KafkaStorageError: the disk failed.
        """
        result = self.take_out(expiry)
        self.delete_later(self.rename_leaving())
        return result

    def take_out(self, expiry: Expiry) -> RetentionResult:
        """Take expired segments out of the log; `rename_leaving` must follow, then `delete_later`.

        Segments that went meanwhile for another reason (a truncation) are passed over. Those that
        only their copies let go stay where the tier has taken back what it said of them since.

        Raises:
            KafkaStorageError: the disk failed.
        """
        segments, ends = self._parts.segments, self._parts.ends
        count, safe_below = 0, max(ends.log_start_offset, ends.copied_through + 1)
        for (base_offset, _), (found, end) in zip(
            expiry.dropped, pairwise(segments.bases), strict=False
        ):
            if base_offset != found or end > safe_below:
                break
            count += 1
        # What a cleaner reads goes the next time.
        is_kept = self._parts.health.failure is not None or self._parts.cleaning.is_running
        if is_kept or not count:
            return RetentionResult((), 0, ends.log_start_offset, expiry.rolled)
        self._parts.epoch_file.clip(expiry.log_start_offset, local_start=segments.bases[0])
        try:
            self._parts.epoch_file.save_clipped()
        except OSError as error:
            self._parts.health.fail(error)
        snapshots = self._parts.producers.snapshots
        snapshots.forget(segments.bases[:count])
        gone = segments.take_oldest(count, snapshots)
        size = sum(segment.size_bytes for segment in gone)
        dropped = expiry.dropped[:count]
        log.info(
            "dropped segments: partition=%s count=%d size_bytes=%d local_start=%d reason=%s",
            self._parts.place.topic_partition,
            count,
            size,
            max(ends.log_start_offset, segments.bases[0]),
            dropped[0][1].value,
        )
        return RetentionResult(dropped, size, ends.log_start_offset, expiry.rolled)

    def rename_leaving(self) -> list[Path]:
        """Rename the files of segments that were taken out; on a pool thread or the loop's.

        Returns:
            The new names.

        Raises:
            LogClosed: the log was closed meanwhile.
            KafkaStorageError: the disk failed.
        """
        try:
            return self._parts.segments.rename_leaving()
        except OSError as error:
            self._parts.health.fail(error)

    def delete_later(self, paths: list[Path]) -> None:
        """Have renamed files unlinked when nobody can need them any more."""
        if not self._parts.health.is_closed:
            self._parts.delete_later(paths, self._config.file_delete_delay_ms)

    def free_names(self) -> None:
        """Rename what still leaves: a new segment may take a name of theirs.

        Raises:
            OSError: the disk failed.
        """
        self.delete_later(self._parts.segments.rename_leaving())


class FactsOfSegments(Sequence[SegmentFacts]):
    """What retention must know of segments, found out for those that it asks for.

    Retention asks from the oldest on and stops at the first that stays: of a log of thousands of
    segments it looks at one.
    """

    def __init__(self, segments: Sequence[LogSegment], log_end: int) -> None:
        self._segments, self._log_end = segments, log_end

    def __len__(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # an int here
        """Facts of one segment."""
        if index < 0:
            index += len(self._segments)
        segment = self._segments[index]
        is_last = index + 1 == len(self._segments)
        is_empty = is_last and segment.size_bytes == 0  # its age is not asked for: no file either
        return SegmentFacts(
            segment.base_offset,
            self._log_end if is_last else self._segments[index + 1].base_offset,
            segment.size_bytes,
            -1 if is_empty else segment.retention_timestamp(),
        )
