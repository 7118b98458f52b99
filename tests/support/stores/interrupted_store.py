"""A directory as a store whose streams break, whose calls fail, or that does not return at all."""

import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from pipeline.values import StoreAddress
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata

CLASS_NAME = "tests.support.stores.interrupted_store:InterruptedStore"


@dataclass
class Interruptions:
    """What goes wrong in one directory.

    Attributes:
        break_after: every stream fails after so many bytes.
        errors: raised by the next calls, one each.
        extra: bytes that stand behind the end of each stream.
        hang: calls wait for this event while it is not set.
        fetches: ranges of log segments that were asked for.
        indexes: how many indexes were asked for.
        opened: how many instances were configured; `closed` likewise.
    """

    break_after: int | None = None
    errors: list[Exception] = field(default_factory=list)
    extra: bytes = b""
    hang: threading.Event | None = None
    fetches: list[tuple[int, int | None]] = field(default_factory=list)
    indexes: int = 0
    opened: int = 0
    closed: int = 0


_INTERRUPTIONS: dict[str, Interruptions] = {}


def interrupt(address: StoreAddress, how: Interruptions) -> StoreAddress:
    """The same directory with these interruptions."""
    _INTERRUPTIONS[address.settings["dir"]] = how
    return StoreAddress(CLASS_NAME, address.settings)


class InterruptedStore(LocalFsRemoteStorageManager):
    """See the module."""

    def configure(self, configs: Mapping[str, str]) -> None:
        self.how = _INTERRUPTIONS[configs["dir"]]
        self.how.opened += 1
        super().configure(configs)

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        self.how.fetches.append((start_position, end_position))
        self._interrupt()
        stream = super().fetch_log_segment(metadata, start_position, end_position)
        return io.BufferedReader(_Stream(stream, self.how), 1 << 16)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self.how.indexes += 1
        self._interrupt()
        return super().fetch_index(metadata, index_type)

    def close(self) -> None:
        self.how.closed += 1
        super().close()

    def _interrupt(self) -> None:
        if self.how.hang is not None:
            self.how.hang.wait(60)
        if self.how.errors:
            raise self.how.errors.pop(0)


class _Stream(io.RawIOBase):
    def __init__(self, stream: BinaryIO, how: Interruptions) -> None:
        self._stream, self._how = stream, how
        self._left = how.break_after
        self._extra = how.extra

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left is not None and not self._left:
            raise RetriableRemoteStorageError("the connection was reset")
        data = self._stream.read(
            len(buffer) if self._left is None else min(self._left, len(buffer))
        )
        if not data:
            data, self._extra = self._extra[: len(buffer)], self._extra[len(buffer) :]
        buffer[: len(data)] = data
        if self._left is not None:
            self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
