"""The storage plugin for any store that fsspec supports."""

from rsm_plugins.fsspec.plugin import FsspecRemoteStorageManager

__all__ = ["FsspecRemoteStorageManager"]
