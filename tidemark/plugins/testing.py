"""The contract of storage plugins as a test class to inherit; it needs pytest."""

from rsm_plugins.testing import (
    FaultyStorage,
    FlakyRequests,
    FlakyStore,
    Operation,
    RemoteStorageManagerContract,
)

__all__ = [
    "FaultyStorage",
    "FlakyRequests",
    "FlakyStore",
    "Operation",
    "RemoteStorageManagerContract",
]
