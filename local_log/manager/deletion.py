"""Deferred unlinking of renamed files, so that present readers can finish."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafka_protocol.types import TopicPartition
from local_log.manager.log_dir import LogDir
from runtime.ports import Ports

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Removal:
    """Partition directories to delete.

    Attributes:
        count: Number of partitions that were here.
        names: New paths, by log directory.
        due: Paths to unlink, by the delay in ms.
    """

    count: int = 0
    names: dict[LogDir, list[tuple[TopicPartition, Path]]] = field(default_factory=dict)
    due: dict[LogDir, dict[int, list[Path]]] = field(default_factory=dict)


class DelayedDeletion:
    """Unlinks files on the pool after their delay."""

    def __init__(self, ports: Ports) -> None:
        self._disk, self._clock, self._scheduler = ports.disk, ports.clock, ports.scheduler
        self._pool = ports.executors.background
        self._waiting: list[tuple[int, list[Path]]] = []
        self._is_closed = False

    def later(self, paths: list[Path], delay_ms: int) -> None:
        """Unlink files or trees after `delay_ms`; from any thread."""
        if paths:
            self._scheduler.call_soon(partial(self._note, paths, delay_ms))

    def _note(self, paths: list[Path], delay_ms: int) -> None:
        self._waiting.append((self._clock.monotonic_ms() + delay_ms, paths))
        self._scheduler.call_later(delay_ms + 1, self.run)

    def run(self) -> None:
        """Unlink on the pool all files that are due."""
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        due = [paths for due_ms, paths in self._waiting if due_ms <= now_ms]
        self._waiting = [entry for entry in self._waiting if entry[0] > now_ms]
        for paths in due:
            self._pool.submit(self._unlink, paths)

    def close(self) -> None:
        """Unlink nothing more; the next start finds the rest. From any thread."""
        self._is_closed = True

    def _unlink(self, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                if self._disk.is_dir(path):
                    self._disk.remove_tree(path)
                else:
                    self._disk.unlink(path)
            except OSError as error:
                log.warning("could not remove a deleted file: path=%s error=%s", path, error)
