"""Files of closed segments that pool threads make again before the segment is copied."""

from pathlib import Path

from local_log.log.health import LogHealth
from local_log.log.place import LogPlace
from runtime.disk import Buffer
from runtime.executors import make_mutex


class SegmentMending:
    """Writes them, one after the other, until the log is closed.

    The tier may ask for a segment again while a thread still mends it for an earlier question: both
    write one file, under one temporary name.
    """

    __slots__ = ("_disk", "_health", "_is_closed", "_mutex")

    def __init__(self, place: LogPlace, health: LogHealth) -> None:
        self._disk, self._health = place.disk, health
        self._is_closed = False
        self._mutex = make_mutex()

    def write(self, path: Path, data: Buffer) -> None:
        """Replace a file; whoever opens it then makes it durable.

        Raises:
            LogClosed: the log was closed.
            OSError: the disk failed.
        """
        with self._mutex:
            if self._is_closed:
                raise self._health.gone()
            self._disk.atomic_write(path, data, durable=False)

    def close(self) -> None:
        """Write nothing more: the directory may have another name, and its name another log."""
        with self._mutex:
            self._is_closed = True
