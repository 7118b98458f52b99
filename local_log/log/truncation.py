"""Truncation of a log: everything at and after an offset is dropped, with its state.

First the marks are lowered, in memory and on disk; then files change; then the state of the dropped
records is removed. A start in between must not take it for a loss. Rebuilding the producers may
take seconds: a log in use is leased (`lease`).
"""

from local_log.log.partition_log import PartitionLog
from runtime.disk_errors import half_done


def truncate_to(log: PartitionLog, offset: int) -> None:
    """Drop everything at and after `offset`; a batch that contains it is dropped whole.

    An `offset` at the log end or above it drops no record, but an epoch without a record.
    Otherwise a later batch of an earlier epoch would remove other epochs. This touches no file
    unless changes of the chain must be durable.

    Raises:
        KafkaStorageError: The disk failed.
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
    # The batch with the log start in it was dropped: offsets before the start must not reappear.
    truncate_fully_and_start_at(log, log.log_start_offset, keep_log_start=True)


def truncate_fully_and_start_at(
    log: PartitionLog, offset: int, *, keep_log_start: bool = False
) -> None:
    """Drop everything, and restart empty at `offset`.

    Args:
        log: The log.
        offset: New local start and log end.
        keep_log_start: Offsets from the log start on are still in the remote tier.

    Raises:
        KafkaStorageError: The disk failed.
    """
    log.delete(log.cleaning.spoil())
    try:
        # A new segment may need a name of one that was removed.
        log.delete_later(log.segments.rename_leaving())
        log.lower_marks(0)  # until the new segment exists, a start finds none
        start = log.log_start_offset
        moves_start = not (keep_log_start and start <= offset)
        if moves_start and offset > start:
            log.move_log_start(offset)  # otherwise the old first segment would count as lost
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
    log.epoch_file.write_due()  # otherwise a kill leaves a chain that later batches contradict
    log.producers.cut(log.segments.all, start=log.log_start_offset, end=end)
    # Offsets that are no longer local were committed.
    log.update_high_watermark(max(log.high_watermark, log.local_log_start_offset))
    log.lease.when_here(log.changed)
