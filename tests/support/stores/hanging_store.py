"""The directory plugin, with calls that hang, starts that fail and a slow end, as a file orders it.

It runs in the tier process. The test, which runs in another, writes the orders into a directory.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from rsm_plugins.api import RemoteStorageError
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import LogSegmentData, RemoteLogSegmentMetadata
from rsm_plugins.settings import Setting, text

CLASS_NAME = "tests.support.stores.hanging_store:HangingStore"
POLL_S = 0.02
SLOW_CLOSE_S = 2.5
"""Longer than two reports of a tier about itself."""
REFUSED = "the start is refused, as ordered"


class Orders:
    """What the store is to suffer, and what it has noted; one directory for test and plugin."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def settings(self, remote_directory: Path) -> dict[str, str]:
        """Of a broker with this store."""
        return {
            "remote.log.storage.manager.class.name": CLASS_NAME,
            "rsm.config.dir": str(remote_directory),
            "rsm.config.orders": str(self._directory),
        }

    def hang_deletes(self, topic: str, partition: int = 0) -> None:
        """From now on deletions of the partition's segments hang."""
        self._hang(topic, partition).touch()

    def let_go(self, topic: str, partition: int = 0) -> None:
        """They end, and hang no more."""
        self._hang(topic, partition).unlink()

    def begun(self, topic: str, partition: int = 0) -> int:
        """Deletions of the partition's segments that have begun."""
        notes = self._notes(topic, partition)
        return notes.stat().st_size if notes.exists() else 0

    def refuse_starts(self) -> None:
        """From now on the plugin refuses its settings."""
        (self._directory / "refuse").touch()

    def let_start(self) -> None:
        """It takes them again."""
        (self._directory / "refuse").unlink()

    def hang_copies(self) -> None:
        """From now on copies hang."""
        (self._directory / "hang-copies").touch()

    def let_copy(self) -> None:
        """They continue, and hang no more."""
        (self._directory / "hang-copies").unlink()

    def close_slowly(self) -> None:
        """Closing the store takes its time from now on."""
        (self._directory / "close-slowly").touch()

    @property
    def is_closed(self) -> bool:
        """Whether a store was closed slowly, to the end."""
        return (self._directory / "closed").exists()

    # -- the plugin's side

    def check_start(self) -> None:
        if (self._directory / "refuse").exists():
            raise RemoteStorageError(REFUSED)

    def suffer_delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        partition = metadata.topic_id_partition
        fd = os.open(
            self._notes(partition.topic, partition.partition),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT,
        )
        os.write(fd, b".")
        os.close(fd)
        self._hang_while(self._hang(partition.topic, partition.partition))

    def suffer_copy(self) -> None:
        self._hang_while(self._directory / "hang-copies")

    def suffer_close(self) -> None:
        if (self._directory / "close-slowly").exists():
            threading.Event().wait(SLOW_CLOSE_S)
            (self._directory / "closed").touch()

    def _hang_while(self, order: Path) -> None:
        while order.exists():
            threading.Event().wait(POLL_S)

    def _hang(self, topic: str, partition: int) -> Path:
        return self._directory / f"hang-{topic}-{partition}"

    def _notes(self, topic: str, partition: int) -> Path:
        return self._directory / f"begun-{topic}-{partition}"


class HangingStore(LocalFsRemoteStorageManager):
    """The directory plugin, and what was ordered."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        *LocalFsRemoteStorageManager.SETTINGS,
        text("orders", "Where the orders are.", allowed="a path"),
    )

    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        self._orders = Orders(Path(values["orders"]))
        self._orders.check_start()
        return super().open_store(values)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._orders.suffer_delete(metadata)
        super().delete_log_segment_data(metadata)

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        self._orders.suffer_copy()
        return super().copy_log_segment_data(metadata, data)

    def close(self) -> None:
        self._orders.suffer_close()
        super().close()
