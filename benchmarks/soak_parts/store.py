"""The soak's storage plugin: a directory that fails now and then, by dice with a seed.

Loaded as a user's plugin is, by its name. `rsm.config.leak` plants what the judge must find.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, BinaryIO, ClassVar

from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from rsm_plugins.settings import Setting, choice, integer

SAYS = "the soak's store fails now and then"
REFUSED, SLOW, OUTAGE = 0.03, 0.02, 0.004
"""Shares of the calls that are refused, begin late, or begin an outage."""
SLOW_S = 0.3
OUTAGE_CALLS = 30
LEAKED_BYTES = 1 << 20
LEAKS = ("none", "memory", "descriptors", "threads")


class FlakyStorageManager(LocalFsRemoteStorageManager):
    """A directory; some calls fail with errors that may pass, some outages take many in a row."""

    SETTINGS: ClassVar[Sequence[Setting]] = (
        *LocalFsRemoteStorageManager.SETTINGS,
        integer("seed", "Of the dice.", default=1, low=0, high=1 << 30),
        choice("leak", "What each tenth call keeps for ever.", LEAKS, default="none"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._calls = self._failing = 0
        self._kept: list[object] = []

    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        """See LayoutStorageManager."""
        self._dice, self._leak = Random(values["seed"]), values["leak"]
        return super().open_store(values)

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        """See RemoteStorageManager."""
        self._throw()
        return super().copy_log_segment_data(metadata, data)

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        """See RemoteStorageManager."""
        self._throw()
        return super().fetch_log_segment(metadata, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """See RemoteStorageManager."""
        self._throw()
        return super().fetch_index(metadata, index_type)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """See RemoteStorageManager."""
        self._throw()
        super().delete_log_segment_data(metadata)

    def _throw(self) -> None:
        with self._lock:
            self._calls += 1
            if self._calls % 10 == 0:
                self._keep()
            thrown = self._dice.random()
            if thrown < OUTAGE:
                self._failing = OUTAGE_CALLS
            elif self._failing:
                self._failing -= 1
        if self._failing or thrown < OUTAGE + REFUSED:
            raise RetriableRemoteStorageError(SAYS)
        if thrown < OUTAGE + REFUSED + SLOW:
            threading.Event().wait(SLOW_S)

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
