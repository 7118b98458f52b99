"""UpdateFeatures, decided: finalise another level of a feature for all nodes at once.

A level is finalised only if every registered node supports it. All updates of a request are
written, or none.

- `eligible.leader.replicas.version` brings one `min.insync.replicas` for the whole cluster: the
  ELR depends on it.
- `metadata.version` never goes down. Decisions after the update write records in the versions of
  the new level. Controllers that could not register before do so then.
- `kraft.version` is checked here, and written by the quorum's leader (`raft.voter_changes`).

DIFFERS: Kafka counts every controller that ever registered. A controller that was removed from the
voters keeps levels down permanently. Kafka lowers metadata.version if no record in between depends
on it.
Kafka's brokers register again, with log directories, when metadata.version reaches 17. Of a
feature named twice Kafka takes the last level.

Source: Kafka 4.3's FeatureControlManager and ConfigurationControlManager; KIP-584, KIP-778, KIP-919
(registrations of controllers), KIP-966.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from metadata_topic.controller.brokers import Registration, controller_image
from metadata_topic.controller.election_rules import DEFAULT_RULES, MIN_ISR, ElectionRules
from metadata_topic.controller.errors import InvalidRequestError, InvalidUpdateVersionError
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MetadataImage,
    ResourceType,
)
from metadata_topic.image.records import (
    CONTROLLER_REGISTRATION_LEVEL,
    DIRECTORIES_LEVEL,
    ELR_LEVEL,
    MetadataRecord,
    make,
)
from metadata_topic.image.snapshot_records import controller_record

_DISABLED: Final = (0, 0)


class UpgradeType(IntEnum):
    """Direction that the caller allows; numbers of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and its requested level; `upgrade_type` as in the request."""

    feature: str
    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatingController:
    """The active controller and its quorum.

    Attributes:
        registration: Of this controller.
        kraft_version: The finalised level, which is not in the image.
        voters: Ids of all voters, including its own.
        defaults: Election settings in its properties.
    """

    registration: Registration
    kraft_version: int = 0
    voters: tuple[int, ...] = ()
    defaults: ElectionRules = DEFAULT_RULES


def update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    me: UpdatingController,
    *,
    validate_only: bool = False,
) -> ControllerResult[None]:
    """Finalise other levels of features; writes no record for kraft.version.

    Args:
        image: The cluster now.
        updates: Each feature at most once.
        me: The controller that decides.
        validate_only: Check, write nothing.

    Raises:
        InvalidUpdateVersionError: For the first update that is not possible.
        InvalidRequestError: A feature is named twice.
    """
    [(named, count)] = Counter(one.feature for one in updates).most_common(1) or [("", 0)]
    if count > 1:
        raise InvalidRequestError(f"{named} is named {count} times in one request.")
    wanted = {one.feature: one.level for one in updates}
    records: list[MetadataRecord] = []
    for update in updates:
        why = _why_not(image, update, me)
        if not why and update.feature == ELR_VERSION and update.level > 0:
            why = _lacks(wanted.get(METADATA_VERSION, image.metadata_version), update)
        if why:
            why = f"Invalid update version {update.level} for feature {update.feature}. {why}"
        elif update.feature == METADATA_VERSION:
            why = _why_not_metadata(image, update.level)
        if why:
            raise InvalidUpdateVersionError(refusal(why))
        records += _records(image, update, me)
    return ControllerResult(() if validate_only else tuple(records), None)


def refusal(why: str) -> str:
    """Message to the client when one update of a request is not possible."""
    return f"The update failed for all features since the following feature had an error: {why}"


def _records(
    image: MetadataImage, update: FeatureUpdate, me: UpdatingController
) -> Iterator[MetadataRecord]:
    feature, level, _ = update
    if feature == KRAFT_VERSION:
        return
    yield make("FeatureLevelRecord", name=feature, feature_level=level)
    if feature == ELR_VERSION and level > 0:
        yield from _one_minimum(image, me.defaults)
    is_first = image.metadata_version < CONTROLLER_REGISTRATION_LEVEL <= level
    if feature == METADATA_VERSION and is_first:
        # Other controllers register once they read the level; the active one must do it here.
        yield controller_record(controller_image(me.registration))


def _why_not(image: MetadataImage, update: FeatureUpdate, me: UpdatingController) -> str:
    """Reason why a feature cannot have a level; "" if it can."""
    feature, level, upgrade_type = update
    current = {**image.features, KRAFT_VERSION: me.kraft_version}.get(feature, 0)
    if upgrade_type not in set(UpgradeType):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    for node, (low, high) in _ranges(image, feature, me):
        if not low <= level <= high and high == 0:
            return f"{node} does not support this feature."
        if not low <= level <= high:
            return f"{node} only supports versions {low}-{high}"
    if image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL:
        known = {me.registration.node_id, *image.controllers}
        for voter_id in me.voters:
            if voter_id not in known:
                return f"controller {voter_id} has not registered, and may not support this feature"
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if feature == KRAFT_VERSION and level < current:
        return "Can't downgrade the version of this feature."
    return ""


def _why_not_metadata(image: MetadataImage, level: int) -> str:
    """Reason why metadata.version cannot have a level that all nodes support; "" if it can."""
    current = image.metadata_version
    if level < current:
        return (
            f"Unsupported {METADATA_VERSION} downgrade from {current} to {level}. Refusing to "
            "perform the requested downgrade because it might delete metadata information."
        )
    if current < DIRECTORIES_LEVEL <= level and image.brokers:
        return (
            f"This version of Tidemark does not raise {METADATA_VERSION} from below "
            f"{DIRECTORIES_LEVEL} while brokers are registered: their log directories would be "
            "unknown. Raise it under controllers of Apache Kafka."
        )
    return ""


def _lacks(metadata_version: int, update: FeatureUpdate) -> str:
    if metadata_version >= ELR_LEVEL:
        return ""
    return (
        f"{update.feature} could not be set to {update.level} because it depends on "
        f"{METADATA_VERSION} level {ELR_LEVEL}"
    )


def _ranges(
    image: MetadataImage, feature: str, me: UpdatingController
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Supported levels of a feature, by node."""
    mine = me.registration.node_id
    yield f"Local controller {mine}", SUPPORTED_FEATURES.get(feature, _DISABLED)
    for broker in image.brokers.values():
        yield f"Broker {broker.id}", broker.features.get(feature, _DISABLED)
    for controller in image.controllers.values():
        if controller.id in me.voters and controller.id != mine:
            yield f"Controller {controller.id}", controller.features.get(feature, _DISABLED)


def _one_minimum(image: MetadataImage, defaults: ElectionRules) -> Iterator[MetadataRecord]:
    """Set a cluster-wide `min.insync.replicas`, and remove those of single brokers."""
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
