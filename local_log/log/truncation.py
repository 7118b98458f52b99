"""A log is cut: everything at and after an offset goes, and what was known of it.

First it is said, in memory and on disk, that the log reaches no further; then files change; then
what was known of the dropped records is forgotten. A start in the middle of this must not take it
for a loss. To learn the producers again may take seconds: a log in use is leased (`lease`).
"""

from local_log.log.partition_log import PartitionLog
from runtime.disk_errors import half_done


def truncate_to(log: PartitionLog, offset: int) -> None:
    """Drop everything at and after `offset`; a batch that holds it goes as a whole.

    At the log end or above it no record goes, but an epoch without a record does: a batch of an
    earlier epoch would else take other epochs' records with it. That touches no file of a log whose
    chain is written behind.

    Raises:
        KafkaStorageError: the disk failed.
    """
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)
        return
    log.delete(log.cleaning.spoil())
    if offset <= log.segments.bases[0]:
        start = max(offset, log.log_start_offset)
        truncate_fully_and_start_at(log, start, keep_log_start=True)
        return
    try:
        end = log.segments.end_if_cut(offset)
        if end >= log.log_start_offset:
            log.lower_marks(log.segments.batches_end(end))
            log.segments.cut(end, log.delete)
            _forget_above(log, end)
            return
    except OSError as error:
        log.health.fail(half_done(error, "a truncation ended before its end"))
    # The batch with the log start in it went: what was before the start must not come back.
    truncate_fully_and_start_at(log, log.log_start_offset, keep_log_start=True)


def truncate_fully_and_start_at(
    log: PartitionLog, offset: int, *, keep_log_start: bool = False
) -> None:
    """Drop everything and begin again, empty, at `offset`.

    Args:
        log: the log.
        offset: the new local start and log end.
        keep_log_start: the range from the log start on is still there, but remote.

    Raises:
        KafkaStorageError: the disk failed.
    """
    log.delete(log.cleaning.spoil())
    try:
        # A new segment may take a name of one that leaves.
        log.delete_later(log.segments.rename_leaving())
        log.lower_marks(0)  # until the new segment is there, a start finds nothing at all
        start = log.log_start_offset
        moves_start = not (keep_log_start and start <= offset)
        if moves_start and offset > start:
            log.move_log_start(offset)  # or the old first segment would count as lost
        log.segments.restart(offset, log.delete)
        if moves_start:
            log.epochs.clear()
            if offset < start:
                log.move_log_start(offset)
        _forget_above(log, offset)
    except OSError as error:
        log.health.fail(half_done(error, "a truncation ended before its end"))


def _forget_above(log: PartitionLog, end: int) -> None:
    log.end_at(end)
    log.epochs.truncate_from_end(end)
    log.epoch_file.write_due()  # or a kill leaves one that later batches contradict
    log.producers.cut(log.segments.all, start=log.log_start_offset, end=end)
    # What is not here any more was committed.
    log.update_high_watermark(max(log.high_watermark, log.local_log_start_offset))
    log.lease.when_here(log.changed)
