"""The storage plugin for S3 and every compatible store."""

from rsm_plugins.s3.plugin import S3RemoteStorageManager

__all__ = ["S3RemoteStorageManager"]
