"""The storage plugin for HDFS, over three drivers."""

from rsm_plugins.hdfs.plugin import HdfsRemoteStorageManager

__all__ = ["HdfsRemoteStorageManager"]
