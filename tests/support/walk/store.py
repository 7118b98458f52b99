"""A storage plugin that writes down every copy and every deletion: what the walk counts by.

A line is written before a deletion begins and after a copy is complete, with one write to a file
opened for appending: a killed process loses none.
"""

import json
import os
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from kafka_protocol.wire.primitives import uuid_to_text
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import LogSegmentData, RemoteLogSegmentMetadata
from rsm_plugins.settings import Setting, text

CLASS_NAME = "tests.support.walk.store:CountedStore"
LEDGER_KEY = "rsm.config.ledger"


class CountedStore(LocalFsRemoteStorageManager):
    """The directory plugin with a ledger."""

    SETTINGS: ClassVar[Sequence[Setting]] = (
        *LocalFsRemoteStorageManager.SETTINGS,
        text("ledger", "Where copies and deletions are written down.", allowed="a path"),
    )

    def open_store(self, values: Any) -> ObjectStore:
        self._ledger = os.open(values["ledger"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return super().open_store(values)

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        custom = super().copy_log_segment_data(metadata, data)
        self._note("copied", metadata)
        return custom

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._note("deleted", metadata)
        super().delete_log_segment_data(metadata)

    def _note(self, what: str, metadata: RemoteLogSegmentMetadata) -> None:
        owner = metadata.topic_id_partition
        line = {
            "what": what,
            "topic": owner.topic,
            "partition": owner.partition,
            "segment": uuid_to_text(metadata.id.id),
            "first": metadata.start_offset,
            "last": metadata.end_offset,
            "ms": time.time_ns() // 1_000_000,
        }
        os.write(self._ledger, json.dumps(line).encode() + b"\n")
