"""The interface of a backend: it keeps whole objects under flat keys.

`layout.manager.LayoutStorageManager` makes a storage plugin of it: the manager handles segments,
indexes and manifests, the backend its store. Keys are relative to the backend's root or prefix,
made of plain parts with `/` between them (`layout.objects.check_key`).

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

    Every method may raise RemoteStorageError (a repetition will not help) and
    RetriableRemoteStorageError (it may), and limits its own requests by time-outs. An error of
    `source` (an OSError) is passed on unchanged.
    """

    @abstractmethod
    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        """Write an object, in place of any older one of that key.

        The object is visible only when it is complete, and survives a power failure once this
        returns.

        Args:
            key: Its name.
            source: Read from position 0 (it may stand elsewhere) to its end; may be read again.

        Returns:
            Size and CRC32C of the bytes that were read from `source`. Where the store can, it has
                verified that it holds the same.
        """

    def put_once(self, key: str, source: BinaryIO) -> ObjectFacts:
        """Write as `put` does, for a small object that is never written with other bytes.

        A store that can do so refuses to replace another object of that key: RemoteStorageError.
        The same bytes again are accepted.
        """
        return self.put(key, source)

    @abstractmethod
    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        """Open bytes `[first, last]` of an object, both inclusive; None means to its end.

        `last` beyond the end is clipped. The stream (a subclass with `readable` and `readinto`) may
        be closed early. It raises the errors of this interface: RetriableRemoteStorageError also
        where the connection ends before all announced bytes have arrived.

        Raises:
            RemoteResourceNotFoundError: There is no such object.
            RemoteObjectDamagedError: The object ends at or before `first`.
        """

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, with the remains of unfinished puts of these keys; absent ones are fine.

        Returns once no reader anywhere can find them.
        """

    @abstractmethod
    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects whose key begins with `prefix`, in the order of their keys."""

    @abstractmethod
    def close(self) -> None:
        """Release connections and threads."""
