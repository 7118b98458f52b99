"""What all connections of a server share, and what they ask of it."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.network.buffers import FrameBuffers
from broker.network.dispatch import Dispatcher, Peer
from broker.network.limits import NetworkLimits
from broker.network.request_memory import RequestMemory
from broker.network.time_slices import TimeSlices
from broker.network.unsent import Unsent
from runtime.clock import Clock
from runtime.disk import Disk, FileRegion
from runtime.disk_errors import is_of_exhaustion
from runtime.metrics import Registry

log = logging.getLogger(__name__)

NAMED_MAX = 1_000

OnFailure = Callable[[Path, OSError], None]


def _nobody(path: Path, error: OSError) -> None:
    """Nobody owns the files."""


class ReadFailures:
    """Counts and says them.

    The client's connection ends with the answer half sent, so it is the broker that must say
    what is wrong: the file by its name at ERROR, once a file; a metric, each time; and whoever
    owns the file hears of it, to take its directory offline as a failing read does elsewhere.

    Attributes:
        on_failure: called on the loop with the file and why it cannot be read; not where the
            process has merely used up descriptors or memory.
    """

    def __init__(self, metrics: Registry) -> None:
        self.on_failure: OnFailure = _nobody
        self._named: set[str] = set()
        self._count = metrics.counter(
            "tidemark_file_read_failures_total",
            "Answers that broke off because a file could not be read.",
        )

    def note(self, path: Path | str, error: OSError) -> None:
        """A file could not be read."""
        self._count.inc()
        if is_of_exhaustion(log, f"file {path}", error):
            return
        if str(path) not in self._named and len(self._named) < NAMED_MAX:
            self._named.add(str(path))
            log.error("file cannot be read: path=%s error=%s", path, error)
        self.on_failure(Path(path), error)


class Shared(ABC):
    """A server as its connections know it."""

    loop: asyncio.AbstractEventLoop
    limits: NetworkLimits
    clock: Clock
    disk: Disk
    dispatcher: Dispatcher
    scratch: bytearray
    buffers: FrameBuffers
    memory: RequestMemory
    slices: TimeSlices
    unsent: Unsent
    read_failures: ReadFailures

    @abstractmethod
    def authenticated(self, connection: Any) -> None:
        """The peer of a connection is known now."""

    @abstractmethod
    def forget(self, connection: Any, peer: Peer, reason: str, *, quiet: bool) -> None:
        """A connection has closed: count it out and write its log line."""

    @abstractmethod
    def read_cold(self, piece: FileRegion, done: Callable[[bytes | BaseException], None]) -> None:
        """Read a region on a pool thread and call `done` on the loop."""
