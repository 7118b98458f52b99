"""What a backend of ours must be able to do: keep whole objects under flat keys.

`layout.manager.LayoutStorageManager` makes a storage plugin of it: it knows segments, indexes and
manifests, a backend knows its store. Keys are relative to the backend's root or prefix, made of
plain parts with `/` between them (`object_layout.check_key`).

Must not know: segments, indexes, topics.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from rsm_plugins.api import StoredObject
from rsm_plugins.layout.objects import ObjectFacts


class ObjectStore(ABC):
    """A store of whole objects. Methods are called from many threads at once.

    Every method may raise RemoteStorageError (trying again will not help) and
    RetriableRemoteStorageError (it may), and keeps deadlines of its own. An error of `source` (an
    OSError) passes through as it is.
    """

    @abstractmethod
    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        """Write an object, in place of an older one of that key.

        The object is visible only when it is whole, and survives a power cut when this returns.

        Args:
            key: its name.
            source: read from position 0 (it may stand elsewhere) to its end; may be read again.

        Returns:
            Size and CRC32C of the bytes that were read from `source`; the store has verified that
            it holds the same where it can.
        """

    def put_once(self, key: str, source: BinaryIO) -> ObjectFacts:
        """As `put`, for a small object that is never written with other bytes.

        A store that can lets no other object of that key be replaced: RemoteStorageError. The same
        bytes again are fine.
        """
        return self.put(key, source)

    @abstractmethod
    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        """Open bytes `[first, last]` of an object, both inclusive; None means to its end.

        `last` beyond the end is clipped. The stream (a subclass with `readable` and `readinto`) may
        be closed early. It raises the errors of this interface: RetriableRemoteStorageError also
        where the connection ends before all announced bytes have come.

        Raises:
            RemoteResourceNotFoundError: there is no such object.
            RemoteObjectDamagedError: the object ends at or before `first`.
        """

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, and what unfinished puts of these keys left; what is absent is fine.

        Returns when a reader anywhere can no longer find them.
        """

    @abstractmethod
    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects whose key begins with `prefix`, in the order of their keys."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and threads."""
