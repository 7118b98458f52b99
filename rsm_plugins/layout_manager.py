"""The old name of `rsm_plugins.layout.manager`: works until 1.0, with a warning."""

import warnings

from rsm_plugins.layout.manager import LayoutStorageManager

__all__ = ["LayoutStorageManager"]

warnings.warn(
    "rsm_plugins.layout_manager is rsm_plugins.layout.manager now; the old name goes with 1.0",
    DeprecationWarning,
    stacklevel=2,
)
