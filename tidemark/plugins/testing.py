"""The contract of storage plugins as a test class to inherit; it needs pytest."""

from rsm_plugins.testing import FaultyStorage, Operation, RemoteStorageManagerContract

__all__ = ["FaultyStorage", "Operation", "RemoteStorageManagerContract"]
