"""The old name of `rsm_plugins.fsspec.plugin`: works until 1.0, with a warning."""

import warnings

from rsm_plugins.fsspec.plugin import (
    OPTIONS,
    REQUEST_TIMEOUT,
    FsspecRemoteStorageManager,
    connect,
    secrets_of,
)

__all__ = ["OPTIONS", "REQUEST_TIMEOUT", "FsspecRemoteStorageManager", "connect", "secrets_of"]

warnings.warn(
    "rsm_plugins.fsspec_store is rsm_plugins.fsspec.plugin now; the old name goes with 1.0",
    DeprecationWarning,
    stacklevel=2,
)
