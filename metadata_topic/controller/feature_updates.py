"""UpdateFeatures, decided: another level of a feature is finalised, for all nodes at once.

A level is finalised only if every registered node serves it. All updates of a request are written,
or none.

Of what this version serves, `eligible.leader.replicas.version` can be changed. With it goes one
`min.insync.replicas` for the whole cluster: who is eligible is decided by it.

DIFFERS: Kafka changes metadata.version and kraft.version this way, too.

Source: Kafka 4.3's FeatureControlManager and ConfigurationControlManager; KIP-584, KIP-966.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from metadata_topic.controller.election_rules import DEFAULT_RULES, MIN_ISR, ElectionRules
from metadata_topic.controller.errors import InvalidUpdateVersionError
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import ELR_VERSION, METADATA_VERSION, MetadataImage, ResourceType
from metadata_topic.image.records import ELR_LEVEL, MetadataRecord, make

_DISABLED: Final = (0, 0)


class UpgradeType(IntEnum):
    """What the caller allows; the numbers of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and the level that it shall have; `upgrade_type` as in the request."""

    feature: str
    level: int
    upgrade_type: int


def update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    *,
    node_id: int,
    validate_only: bool = False,
    defaults: ElectionRules = DEFAULT_RULES,
) -> ControllerResult[None]:
    """Finalise other levels of features.

    Args:
        image: the cluster now.
        updates: each feature at most once.
        node_id: of this controller, for the message.
        validate_only: check, write nothing.
        defaults: what the properties of this controller say of elections.

    Raises:
        InvalidUpdateVersionError: of the first update that cannot be.
    """
    records: list[MetadataRecord] = []
    for update in updates:
        why = _why_not(image, update, node_id)
        if why:
            raise InvalidUpdateVersionError(
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.feature}. {why}"
            )
        records.append(make("FeatureLevelRecord", name=update.feature, feature_level=update.level))
        if update.feature == ELR_VERSION and update.level > 0:
            records += _one_minimum(image, defaults)
    return ControllerResult(() if validate_only else tuple(records), None)


def _why_not(image: MetadataImage, update: FeatureUpdate, node_id: int) -> str:
    """Why a feature cannot have a level; "": it can."""
    feature, level, upgrade_type = update
    current = image.features.get(feature, 0)
    if upgrade_type not in set(UpgradeType):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    for node, (low, high) in _ranges(image, feature, node_id):
        if not low <= level <= high and high == 0:
            return f"{node} does not support this feature."
        if not low <= level <= high:
            return f"{node} only supports versions {low}-{high}"
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if feature != ELR_VERSION:
        return f"This version of Tidemark changes {ELR_VERSION} only."
    if level > 0 and image.metadata_version < ELR_LEVEL:
        return (
            f"{feature} could not be set to {level} because it depends on {METADATA_VERSION} level "
            f"{ELR_LEVEL}"
        )
    return ""


def _ranges(
    image: MetadataImage, feature: str, node_id: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Which levels of a feature each node serves."""
    yield f"Local controller {node_id}", SUPPORTED_FEATURES.get(feature, _DISABLED)
    for broker in image.brokers.values():
        yield f"Broker {broker.id}", broker.features.get(feature, _DISABLED)
    for controller in image.controllers.values():
        if controller.id != node_id:
            yield f"Controller {controller.id}", controller.features.get(feature, _DISABLED)


def _one_minimum(image: MetadataImage, defaults: ElectionRules) -> Iterator[MetadataRecord]:
    """Give the cluster a `min.insync.replicas`, and take away what single brokers have."""
    if MIN_ISR not in image.broker_config(None):
        yield _minimum("", str(defaults.min_isr))
    for (kind, name), configs in image.configs.items():
        if kind == ResourceType.BROKER and name and MIN_ISR in configs:
            yield _minimum(name, None)


def _minimum(broker: str, value: str | None) -> MetadataRecord:
    return make(
        "ConfigRecord",
        resource_type=int(ResourceType.BROKER),
        resource_name=broker,
        name=MIN_ISR,
        value=value,
    )
