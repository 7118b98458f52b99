"""The old name of `rsm_plugins.layout.store`: works until 1.0, with a warning."""

import warnings

from rsm_plugins.layout.store import ObjectStore

__all__ = ["ObjectStore"]

warnings.warn(
    "rsm_plugins.object_store is rsm_plugins.layout.store now; the old name goes with 1.0",
    DeprecationWarning,
    stacklevel=2,
)
