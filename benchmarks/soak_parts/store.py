"""The soak's storage plugin: a directory that fails now and then, at random with a seed.

Loaded as a user's plugin is, by its name. `rsm.config.leak` plants what the validator must find.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, BinaryIO, ClassVar

from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from rsm_plugins.settings import Setting, choice, integer
from runtime.override import override

SAYS = "the soak's store fails now and then"
REFUSED, SLOW, OUTAGE = 0.03, 0.02, 0.004
"""Shares of the calls that are refused, begin late, or begin an outage."""
SLOW_S = 0.3
OUTAGE_CALLS, OUTAGE_S = 30, 5
"""An outage ends with either. By calls alone it could last for minutes: while the store fails, only
one partition tries it, with pauses of up to 30 s."""
TOLD_CALLS = 500
COUNTS = "the soak's store: calls=%d failed=%d late=%d outages=%d"
LEAKED_BYTES, LEAK_CALLS = 1 << 20, 10
LEAKS = ("none", "memory", "descriptors", "threads")


log = logging.getLogger(__name__)


class Faults:
    """Which calls fail and which begin late, at random; pure but for them.

    Attributes:
        calls, failed, late, outages: How many so far.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.calls = self.failed = self.late = self.outages = 0
        self._failing, self._outage_end_s = 0, 0.0

    def next(self, now_s: float) -> tuple[bool, bool]:
        """Of the next call: whether it fails, and whether it begins late."""
        thrown = self._rng.random()
        if thrown < OUTAGE:
            self.outages += 1
            self._failing, self._outage_end_s = OUTAGE_CALLS, now_s + OUTAGE_S
        elif self._failing:
            self._failing = self._failing - 1 if now_s < self._outage_end_s else 0
        fails = self._failing > 0 or thrown < OUTAGE + REFUSED
        is_late = not fails and thrown < OUTAGE + REFUSED + SLOW
        self.calls += 1
        self.failed += fails
        self.late += is_late
        return fails, is_late


class FlakyStorageManager(LocalFsRemoteStorageManager):
    """A directory; some calls fail with errors that may pass, some outages take many in a row."""

    SETTINGS: ClassVar[Sequence[Setting]] = (
        *LocalFsRemoteStorageManager.SETTINGS,
        integer("seed", "Of the rng.", default=1, low=0, high=1 << 30),
        choice("leak", "What each tenth call keeps without end.", LEAKS, default="none"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._kept: list[object] = []

    @override
    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        self._faults, self._leak = Faults(Random(values["seed"])), values["leak"]
        return super().open_store(values)

    @override
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        self._throw()
        return super().copy_log_segment_data(metadata, data)

    @override
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        self._throw()
        return super().fetch_log_segment(metadata, start_position, end_position)

    @override
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self._throw()
        return super().fetch_index(metadata, index_type)

    @override
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._throw()
        super().delete_log_segment_data(metadata)

    @override
    def close(self) -> None:
        self._tell()
        super().close()

    def _throw(self) -> None:
        with self._lock:
            fails, is_late = self._faults.next(time.monotonic())
            if self._faults.calls % LEAK_CALLS == 0:
                self._keep()
            if self._faults.calls % TOLD_CALLS == 0:
                self._tell()
        if fails:
            raise RetriableRemoteStorageError(SAYS)
        if is_late:
            threading.Event().wait(SLOW_S)

    def _tell(self) -> None:
        counted = self._faults
        log.info(COUNTS, counted.calls, counted.failed, counted.late, counted.outages)

    def _keep(self) -> None:
        match self._leak:
            case "memory":
                self._kept.append(b"x" * LEAKED_BYTES)
            case "descriptors":
                self._kept.append(os.open(os.devnull, os.O_RDONLY))
            case "threads":
                waits = threading.Thread(target=threading.Event().wait, daemon=True)
                waits.start()
                self._kept.append(waits)
