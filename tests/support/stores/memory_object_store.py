"""An object store in memory that remembers every request, in order."""

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    StoredObject,
)
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.layout.store import ObjectStore


class MemoryObjectStore(ObjectStore):
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        source.seek(0)
        body = source.read()
        with self._lock:
            self.requests.append(("put", key))
            self.objects[key] = body
        return ObjectFacts(len(body), crc32c(body))

    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        with self._lock:
            self.requests.append(("get", key))
            body = self.objects.get(key)
        if body is None:
            raise RemoteResourceNotFoundError(key)
        if first >= max(len(body), 1):
            raise RemoteObjectDamagedError(f"{key} ends before {first}")
        return _Raw(body[first : len(body) if last is None else last + 1])

    def delete(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                self.requests.append(("delete", key))
                self.objects.pop(key, None)

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        for key, body in sorted(self.objects.items()):
            if key.startswith(prefix):
                yield StoredObject(key, len(body), 0)

    def close(self) -> None:
        pass


class MemoryManager(LayoutStorageManager):
    def __init__(self, store: ObjectStore | None = None) -> None:
        super().__init__()
        self.store = store or MemoryObjectStore()
        self.configure({})

    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        return self.store


class _Raw(io.RawIOBase):
    def __init__(self, body: bytes) -> None:
        self._body = io.BytesIO(body)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        return self._body.readinto(buffer)
