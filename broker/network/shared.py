"""What all connections of a server share, and what they ask of it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from broker.network.buffers import FrameBuffers
from broker.network.dispatch import Dispatcher, Peer
from broker.network.file_errors import ReadFailures
from broker.network.limits import NetworkLimits
from broker.network.request_memory import RequestMemory
from broker.network.turns import Turns
from broker.network.unsent import Unsent
from runtime.clock import Clock
from runtime.disk import Disk, FileRegion


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
    turns: Turns
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
