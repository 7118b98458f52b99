"""Features that this version supports, and their levels.

The format step finalises only supported features: a client that sees `transaction.version` 2 would
use a protocol that is missing here. Unsupported features that Apache Kafka finalised stay in the
image, so snapshots keep them; ApiVersions does not report them.
"""

from typing import Final

from metadata_topic.image.image import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MetadataImage,
)
from runtime.health_reasons import HealthReason

METADATA_VERSION_LEVEL: Final = 30  # 4.3-IV0
METADATA_VERSION_LOWEST: Final = 7  # 3.3-IV3, the first that KRaft clusters upgrade from

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    ELR_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_VERSION_LOWEST, METADATA_VERSION_LEVEL),
}

DEFAULT_FEATURES: Final[dict[str, int]] = {
    METADATA_VERSION: METADATA_VERSION_LEVEL,
    ELR_VERSION: 1,
}
"""Levels that the format step finalises; kraft.version is in control records instead."""


def unserved_features(image: MetadataImage) -> dict[str, int]:
    """Finalised features by name whose level this version does not support."""
    unserved = {}
    for name, level in image.features.items():
        low, high = SUPPORTED_FEATURES.get(name, (0, 0))
        if not low <= level <= high:
            unserved[name] = level
    return unserved


def controller_problem(image: MetadataImage, kraft_version: int) -> str:
    """Reason why this version cannot be the active controller of this cluster; "" if it can.

    Only features that determine the controller's records count. group.version, transaction.version,
    share.version and streams.version bind brokers.
    """
    finalised = {
        KRAFT_VERSION: kraft_version,
        METADATA_VERSION: image.metadata_version,
        ELR_VERSION: image.features.get(ELR_VERSION, 0),
    }
    for name, level in finalised.items():
        low, high = SUPPORTED_FEATURES[name]
        if level > high or 0 < level < low:  # 0: not finalised yet
            return HealthReason.FEATURE_LEVEL.line(feature=name, level=level, low=low, high=high)
    return ""


def finalized_features(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """Finalised features for ApiVersions and DescribeFeatures: supported, and above level 0."""
    found = {name: level for name, level in image.features.items() if name in SUPPORTED_FEATURES}
    if kraft_version > 0:
        found[KRAFT_VERSION] = kraft_version
    return found
