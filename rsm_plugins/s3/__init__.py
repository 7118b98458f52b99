"""S3, and every store that speaks S3."""

from rsm_plugins.s3.plugin import S3RemoteStorageManager

__all__ = ["S3RemoteStorageManager"]
