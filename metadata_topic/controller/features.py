"""Which features this version serves, and at which levels.

Only what is served is finalised by the format step: a client that sees `transaction.version` 2
would use a protocol that is not there. Features that a log of Apache Kafka finalised stay in the
image (snapshots lose nothing) but are reported as unserved.
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
"""What the format step finalises, next to kraft.version, which lives in control records."""


def unserved_features(image: MetadataImage) -> dict[str, int]:
    """Finalised features whose level is outside what this version serves, by name."""
    unserved = {}
    for name, level in image.features.items():
        low, high = SUPPORTED_FEATURES.get(name, (0, 0))
        if not low <= level <= high:
            unserved[name] = level
    return unserved


def controller_problem(image: MetadataImage, kraft_version: int) -> str:
    """Why this version cannot be the active controller of this cluster; empty if it can.

    Only what decides which records a controller writes counts. group.version, transaction.version,
    share.version and streams.version bind brokers.
    """
    finalised = {
        KRAFT_VERSION: kraft_version,
        METADATA_VERSION: image.metadata_version,
        ELR_VERSION: image.features.get(ELR_VERSION, 0),
    }
    for name, level in finalised.items():
        low, high = SUPPORTED_FEATURES[name]
        if level > high or 0 < level < low:  # 0: nothing is finalised yet
            return HealthReason.FEATURE_LEVEL.line(feature=name, level=level, low=low, high=high)
    return ""


def finalized_features(image: MetadataImage, kraft_version: int) -> dict[str, int]:
    """What ApiVersions and DescribeFeatures report: served features above level 0."""
    found = {name: level for name, level in image.features.items() if name in SUPPORTED_FEATURES}
    if kraft_version > 0:
        found[KRAFT_VERSION] = kraft_version
    return found
