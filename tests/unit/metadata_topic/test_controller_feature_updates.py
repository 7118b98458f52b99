"""Which levels of features can be finalised later, and what goes with one of them."""

from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.errors import InvalidUpdateVersionError
from metadata_topic.controller.feature_updates import (
    FeatureUpdate,
    UpgradeType,
    update_features,
)
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import ELR_VERSION, METADATA_VERSION, MetadataImage
from metadata_topic.image.model import ControllerImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of

UP, DOWN = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE
MIN_ISR = "min.insync.replicas"


def config(broker: str, value: str | None) -> object:
    return make("ConfigRecord", resource_type=4, resource_name=broker, name=MIN_ISR, value=value)


def updated(
    image: MetadataImage, *updates: FeatureUpdate, validate_only: bool = False
) -> MetadataImage:
    result = update_features(
        image,
        updates,
        node_id=1,
        validate_only=validate_only,
        defaults=ElectionRules(min_isr=2),
    )
    return apply(image, result.records)


def test_eligible_replicas_come_with_one_minimum_of_the_cluster() -> None:
    image = apply(cluster_of(1), [config("1", "3")])
    after = updated(image, FeatureUpdate(ELR_VERSION, 1, UP))
    assert after.elr_enabled
    assert after.broker_config(None) == {MIN_ISR: "2"}
    assert after.broker_config(1) == {}


def test_a_minimum_of_the_cluster_that_is_there_stays() -> None:
    image = apply(cluster_of(1), [config("", "5")])
    assert updated(image, FeatureUpdate(ELR_VERSION, 1, UP)).broker_config(None) == {MIN_ISR: "5"}


@pytest.mark.parametrize("how", [UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE])
def test_a_downgrade_that_says_so_is_taken(how: UpgradeType) -> None:
    image = cluster_of(1, features={ELR_VERSION: 1})
    assert not updated(image, FeatureUpdate(ELR_VERSION, 0, how)).elr_enabled


def test_a_check_writes_nothing() -> None:
    image = cluster_of(1)
    after = updated(image, FeatureUpdate(ELR_VERSION, 1, UP), validate_only=True)
    assert after.features == image.features


REFUSED = {
    "unknown": (FeatureUpdate("x", 1, UP), "Local controller 1 does not support this feature."),
    "unserved level": (
        FeatureUpdate(ELR_VERSION, 2, UP),
        "Local controller 1 only supports versions 0-1",
    ),
    "negative": (FeatureUpdate(ELR_VERSION, -1, DOWN), "cannot be less than 0"),
    "unknown type": (FeatureUpdate(ELR_VERSION, 1, 0), "does not support the given upgrade type"),
    "up as a downgrade": (FeatureUpdate(ELR_VERSION, 1, DOWN), "Can't downgrade to a newer"),
    "metadata.version": (
        FeatureUpdate(METADATA_VERSION, 29, DOWN),
        "changes eligible.leader.replicas.version only",
    ),
    "kraft.version": (FeatureUpdate("kraft.version", 1, UP), "replicas.version only"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_with_all_of_the_request(what: str) -> None:
    update, why = REFUSED[what]
    with pytest.raises(InvalidUpdateVersionError, match=why) as refused:
        updated(cluster_of(1), FeatureUpdate(ELR_VERSION, 1, UP), update)
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert str(refused.value).startswith("The update failed for all features since")


def test_down_needs_a_word() -> None:
    image = cluster_of(1, features={ELR_VERSION: 1})
    with pytest.raises(InvalidUpdateVersionError, match="either safe or unsafe downgrade"):
        updated(image, FeatureUpdate(ELR_VERSION, 0, UP))


def test_an_older_metadata_version_has_no_eligible_replicas() -> None:
    image = cluster_of(1, features={METADATA_VERSION: 22})
    with pytest.raises(InvalidUpdateVersionError, match=r"on metadata\.version level 23"):
        updated(image, FeatureUpdate(ELR_VERSION, 1, UP))


@pytest.mark.parametrize("node", ["Broker 7", "Controller 3"])
def test_a_node_that_does_not_serve_a_level_is_named(node: str) -> None:
    image, features = cluster_of(1), {**SUPPORTED_FEATURES, ELR_VERSION: (0, 0)}
    if node.startswith("Broker"):
        image = replace(image, brokers={7: replace(image.brokers[1], id=7, features=features)})
    else:
        image = replace(image, controllers={3: ControllerImage(3, bytes(16), features=features)})
    with pytest.raises(InvalidUpdateVersionError, match=f"{node} does not support this feature"):
        updated(image, FeatureUpdate(ELR_VERSION, 1, UP))
