"""The part of a server that its connections use."""

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
from runtime.incidents import Incident
from runtime.log_context import limited
from runtime.metrics import Registry

log = logging.getLogger(__name__)

OnFailure = Callable[[Path, OSError], None]


def _nobody(path: Path, error: OSError) -> None:
    """Default of `ReadFailures.on_failure`: do nothing."""


class ReadFailures:
    """Counts and logs files that could not be read for an answer.

    The client's connection ends in the middle of the answer, so only the broker can report the
    cause. Each failure counts in a metric, and a file is logged at ERROR once. The owner of the
    file then takes its directory offline, as after any failed read.

    Attributes:
        on_failure: Notifies the owner; called on the loop with the path and the error. It is not
            called if the process has merely run out of descriptors or memory.
    """

    def __init__(self, metrics: Registry) -> None:
        self.on_failure: OnFailure = _nobody
        self._count = metrics.counter(
            "tidemark_file_read_failures_total",
            "Answers that broke off because a file could not be read.",
        )

    def note(self, path: Path | str, error: OSError) -> None:
        """Record a failed read of a file."""
        self._count.inc()
        if is_of_exhaustion(log, f"file {path}", error):
            return
        limited.error(log, Incident.FILE_UNREADABLE.line(path=path, error=str(error)), str(path))
        self.on_failure(Path(path), error)


class Shared(ABC):
    """The interface of a server to its connections."""

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
        """Called when the peer of a connection has authenticated."""

    @abstractmethod
    def forget(self, connection: Any, peer: Peer, reason: str, *, quiet: bool) -> None:
        """Called by a connection that has closed: count it out and log it."""

    @abstractmethod
    def read_cold(self, piece: FileRegion, done: Callable[[bytes | BaseException], None]) -> None:
        """Read a region on a pool thread; call `done` on the loop with its bytes or the error."""
