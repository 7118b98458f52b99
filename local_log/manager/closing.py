"""Closes the logs of a directory at shutdown; on a thread that may wait."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Final

from local_log.errors import KafkaStorageError
from local_log.log.partition_log import PartitionLog
from runtime.executors import Pool
from runtime.incidents import Incident

log = logging.getLogger(__name__)

CLOSE_WAIT_S: Final = 60


def close_side_by_side(
    logs: Sequence[PartitionLog],
    pool: Pool,
    *,
    clean: bool,
    closed: Callable[[], object],
    wait_s: float = CLOSE_WAIT_S,
) -> bool:
    """Close logs, several at a time, so that thousands share fsyncs.

    Args:
        logs: Of one directory.
        pool: Closes a few at a time.
        clean: Write everything for a clean start.
        closed: Called after each.
        wait_s: Longest wait for a single log; after it the rest is abandoned.

    Returns:
        True if all of them were closed completely.
    """
    is_whole = True
    closing = [pool.submit(each.close, clean=clean) for each in logs]
    for done, each in zip(closing, logs, strict=True):
        try:
            done.result(wait_s)
        except KafkaStorageError:
            is_whole = False
        except CancelledError:
            pass  # after one that timed out
        except TimeoutError:
            is_whole = False
            error = f"the log is not closed in {wait_s} s"
            log.error(Incident.NO_CLEAN_STOP.line(path=each.directory, error=error))  # noqa: TRY400
            for rest in closing:
                rest.cancel()
        closed()
    return is_whole
