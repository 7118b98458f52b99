"""Everything that the author of a storage plugin imports; docs/plugin-guide.md uses it.

A store of plain objects needs `ObjectStore` and `LayoutStorageManager`; any other one implements
`RemoteStorageManager`. `settings` declares what is read from `rsm.config.*`.
"""

from rsm_plugins import settings
from rsm_plugins.api import (
    ClaimKeeper,
    ObjectLister,
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
    StoredObject,
    StorePlace,
)
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.layout.piece_stream import PieceStream
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.retries import Retries
from rsm_plugins.segment import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
)
from rsm_plugins.settings import Setting

__all__ = [
    "ClaimKeeper",
    "IndexType",
    "LayoutStorageManager",
    "LogSegmentData",
    "ObjectFacts",
    "ObjectLister",
    "ObjectStore",
    "PieceStream",
    "RemoteLogSegmentId",
    "RemoteLogSegmentMetadata",
    "RemoteObjectDamagedError",
    "RemoteResourceNotFoundError",
    "RemoteStorageError",
    "RemoteStorageManager",
    "RetriableRemoteStorageError",
    "Retries",
    "Setting",
    "StorePlace",
    "StoredObject",
    "settings",
]
