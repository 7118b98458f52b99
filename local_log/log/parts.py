"""The parts of one log, put together.

Each has its state to itself: the others look at it, and change it by its methods alone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from local_log.log.cleaning import LogCleaning
from local_log.log.ends import LogEnds
from local_log.log.epoch_file import EpochFile
from local_log.log.flushing import LogFlushing
from local_log.log.health import LogHealth
from local_log.log.place import LogPlace
from local_log.log.producers import LogProducers
from local_log.log.results import LogHooks
from local_log.log.segments import LogSegments
from local_log.recovery.recovery import OpenedLog
from local_log.recovery.survey import OpenRequest
from local_log.small_files import SmallFiles
from runtime.disk import Disk


class LogParts(NamedTuple):
    """What the parts that only work (`partition_log` names them) are given.

    Attributes:
        delete_later: unlinks renamed files after so many milliseconds.
    """

    place: LogPlace
    hooks: LogHooks
    delete_later: Callable[[list[Path], int], None]
    health: LogHealth
    ends: LogEnds
    segments: LogSegments
    epoch_file: EpochFile
    producers: LogProducers
    flushing: LogFlushing
    cleaning: LogCleaning


def parts_of(
    opened: OpenedLog, request: OpenRequest, disk: Disk, files: SmallFiles, hooks: LogHooks
) -> LogParts:
    """Make the parts of a log that was opened."""
    place, config = LogPlace(request.topic_partition, request.directory, disk), request.config
    health = LogHealth(place, hooks.failed)
    segments = LogSegments(opened.segments, place, config, health=health, cache=hooks.aborted)
    log_start, log_end = opened.log_start_offset, opened.log_end_offset
    high_watermark = min(request.high_watermark, log_end)
    ends = LogEnds(
        log_start=log_start,
        log_start_known=opened.log_start_known,
        log_end=log_end,
        high_watermark=max(high_watermark, log_start, segments.bases[0]),
    )
    epoch_file = EpochFile(
        opened, place, config, files=files, health=health, newer=ends.forget_copies
    )
    producers = LogProducers(opened.producers, opened.snapshots, disk)
    producers.states.raise_high_watermark(ends.high_watermark)
    flushed_end = log_end if request.is_clean else request.recovery_point or 0
    flushing = LogFlushing(
        min(flushed_end, log_end), place, ends=ends, segments=segments, epoch_file=epoch_file
    )
    return LogParts(
        place=place,
        hooks=hooks,
        delete_later=hooks.delete_later or _delete_now(disk),
        health=health,
        ends=ends,
        segments=segments,
        epoch_file=epoch_file,
        producers=producers,
        flushing=flushing,
        cleaning=LogCleaning(place, health, segments, producers),
    )


def _delete_now(disk: Disk) -> Callable[[list[Path], int], None]:
    def delete(paths: list[Path], _delay_ms: int) -> None:
        for path in paths:
            disk.unlink(path)

    return delete
