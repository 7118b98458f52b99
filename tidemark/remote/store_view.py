"""A listing of the store, set aside on disk and given out again partition by partition.

A store may hold millions of objects in whatever order its plugin lists them; memory holds those of
one partition. The file is SQLite's own temporary one: it has no name, and no other process sees it.
"""

import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from kafka_protocol.types import TopicIdPartition
from rsm_plugins.api import StoredObject
from rsm_plugins.layout.objects import parse_key
from tidemark.remote.audit import Held

_BATCH = 5_000
_TABLES = """
CREATE TABLE held (topic_id BLOB, partition INT, base TEXT, topic TEXT, segment_id BLOB,
    start_offset INT, suffix TEXT, size INT, modified_ms INT);
CREATE TABLE other (key TEXT, size INT, modified_ms INT);
"""


class Listed(NamedTuple):
    """Sums of a listing."""

    objects: int
    size_bytes: int


class StoreView:
    """Takes a listing once; use it in a `with` block."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("")
        self._db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
        self._rows: list[tuple[object, ...]] = []
        self._others: list[StoredObject] = []
        self._objects = self._size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    @property
    def listed(self) -> Listed:
        """The objects that were taken."""
        return Listed(self._objects, self._size_bytes)

    def add(self, one: StoredObject) -> None:
        """Take the next object of the listing."""
        self._objects += 1
        self._size_bytes += one.size_bytes
        said = parse_key(one.key)
        if said is None:
            self._others.append(one)
        else:
            place = said.topic_id, said.partition, said.base, said.topic, said.segment_id
            facts = said.start_offset, said.suffix, one.size_bytes, one.modified_ms
            self._rows.append(place + facts)
        if len(self._rows) + len(self._others) >= _BATCH:
            self._write()

    def complete(self) -> None:
        """The listing is over: make ready to be asked."""
        self._write()
        self._db.execute("CREATE INDEX by_partition ON held (topic_id, partition, base)")

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Partitions of which the store holds something; the topic as the names say it."""
        rows = self._db.execute(
            "SELECT topic_id, partition, min(topic) FROM held GROUP BY topic_id, partition"
        )
        for topic_id, partition, topic in rows:
            yield TopicIdPartition(bytes(topic_id), partition, topic)

    def held(self, partition: TopicIdPartition) -> dict[str, Held]:
        """The objects of a partition in the store, by base name."""
        rows = self._db.execute(
            "SELECT base, topic, segment_id, start_offset, suffix, size, modified_ms FROM held"
            " WHERE topic_id = ? AND partition = ? ORDER BY base",
            (partition.topic_id, partition.partition),
        )
        found: dict[str, Held] = {}
        for base, topic, segment_id, start_offset, suffix, size, modified_ms in rows:
            before = found.get(base)
            sizes = {suffix: size} if before is None else {**before.sizes, suffix: size}
            youngest = modified_ms if before is None else max(before.modified_ms, modified_ms)
            found[base] = Held(base, topic, bytes(segment_id), start_offset, sizes, youngest)
        return found

    def foreign(self) -> Iterator[StoredObject]:
        """Objects whose names are none of the layout's."""
        rows = self._db.execute("SELECT key, size, modified_ms FROM other ORDER BY key")
        for key, size, modified_ms in rows:
            yield StoredObject(key, size, modified_ms)

    def _write(self) -> None:
        self._db.executemany("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._rows)
        others = [(one.key, one.size_bytes, one.modified_ms) for one in self._others]
        self._db.executemany("INSERT INTO other VALUES (?, ?, ?)", others)
        self._rows.clear()
        self._others.clear()
