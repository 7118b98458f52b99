"""Any store that fsspec reaches."""

from rsm_plugins.fsspec.plugin import FsspecRemoteStorageManager

__all__ = ["FsspecRemoteStorageManager"]
