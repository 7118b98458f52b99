"""The old name of `rsm_plugins.layout.piece_stream`: works until 1.0, with a warning."""

import warnings

from rsm_plugins.layout.piece_stream import PieceStream

__all__ = ["PieceStream"]

warnings.warn(
    "rsm_plugins.piece_stream is rsm_plugins.layout.piece_stream now; the old name goes with 1.0",
    DeprecationWarning,
    stacklevel=2,
)
