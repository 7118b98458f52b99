"""Which levels of features can be finalised later, and what goes with one of them."""

from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.errors import InvalidRequestError, InvalidUpdateVersionError
from metadata_topic.controller.feature_updates import (
    FeatureUpdate,
    UpdatingController,
    UpgradeType,
    update_features,
)
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MetadataImage,
)
from metadata_topic.image.model import ControllerImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of

UP, DOWN = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE
ME = UpdatingController(
    registration=Registration(1, b"i" * 16, (), SUPPORTED_FEATURES),
    voters=(1,),
    defaults=ElectionRules(min_isr=2),
)
MIN_ISR = "min.insync.replicas"


def config(broker: str, value: str | None) -> object:
    return make("ConfigRecord", resource_type=4, resource_name=broker, name=MIN_ISR, value=value)


def updated(
    image: MetadataImage,
    *updates: FeatureUpdate,
    validate_only: bool = False,
    me: UpdatingController | None = None,
) -> MetadataImage:
    result = update_features(image, updates, me or ME, validate_only=validate_only)
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
    "older metadata": (
        FeatureUpdate(METADATA_VERSION, 29, DOWN),
        "error: Unsupported metadata.version downgrade from 30 to 29. Refusing to perform",
    ),
    "newer metadata": (
        FeatureUpdate(METADATA_VERSION, 31, UP),
        "Local controller 1 only supports versions 7-30",
    ),
    "no metadata": (FeatureUpdate(METADATA_VERSION, 0, DOWN), "depends on metadata"),
    "kraft.version 2": (
        FeatureUpdate(KRAFT_VERSION, 2, UP),
        "Local controller 1 only supports versions 0-1",
    ),
    "kraft.version as a downgrade": (FeatureUpdate(KRAFT_VERSION, 1, DOWN), "to a newer version"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_with_all_of_the_request(what: str) -> None:
    update, why = REFUSED[what]
    other = METADATA_VERSION if update.feature == ELR_VERSION else ELR_VERSION
    beside = FeatureUpdate(other, 30 if other == METADATA_VERSION else 1, UP)
    with pytest.raises(InvalidUpdateVersionError, match=why) as refused:
        updated(cluster_of(1), beside, update)
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
    both = FeatureUpdate(ELR_VERSION, 1, UP), FeatureUpdate(METADATA_VERSION, 30, UP)
    after = updated(image, *both)
    assert (after.elr_enabled, after.metadata_version) == (True, 30), "as one they may be raised"


@pytest.mark.parametrize("node", ["Broker 7", "Controller 3"])
def test_a_node_that_does_not_serve_a_level_is_named(node: str) -> None:
    image, features = cluster_of(1), {**SUPPORTED_FEATURES, ELR_VERSION: (0, 0)}
    if node.startswith("Broker"):
        image = replace(image, brokers={7: replace(image.brokers[1], id=7, features=features)})
    else:
        image = replace(image, controllers={3: ControllerImage(3, bytes(16), features=features)})
    with pytest.raises(InvalidUpdateVersionError, match=f"{node} does not support this feature"):
        updated(image, FeatureUpdate(ELR_VERSION, 1, UP), me=replace(ME, voters=(1, 3)))


def test_an_unregistered_voter_blocks_levels_if_it_could_have_registered() -> None:
    three = replace(ME, voters=(1, 3))
    with pytest.raises(InvalidUpdateVersionError, match="controller 3 has not registered"):
        updated(
            cluster_of(features={METADATA_VERSION: 29}),
            FeatureUpdate(METADATA_VERSION, 30, UP),
            me=three,
        )
    image = cluster_of(features={METADATA_VERSION: 14})
    assert updated(image, FeatureUpdate(METADATA_VERSION, 15, UP), me=three).metadata_version == 15


def test_a_controller_that_votes_no_more_holds_nothing() -> None:
    gone = ControllerImage(3, bytes(16), features={METADATA_VERSION: (7, 29)})
    image = replace(cluster_of(features={METADATA_VERSION: 29}), controllers={3: gone})
    assert updated(image, FeatureUpdate(METADATA_VERSION, 30, UP)).metadata_version == 30
    with pytest.raises(InvalidUpdateVersionError, match="Controller 3 only supports versions 7-29"):
        updated(image, FeatureUpdate(METADATA_VERSION, 30, UP), me=replace(ME, voters=(1, 3)))


def test_raising_metadata_to_registrations_registers_the_controller() -> None:
    image = cluster_of(features={METADATA_VERSION: 14})
    after = updated(image, FeatureUpdate(METADATA_VERSION, 16, UP))
    assert after.controllers[1].incarnation_id == ME.registration.incarnation_id
    assert updated(after, FeatureUpdate(METADATA_VERSION, 30, UP)).metadata_version == 30
    low = updated(
        cluster_of(features={METADATA_VERSION: 7}), FeatureUpdate(METADATA_VERSION, 14, UP)
    )
    assert not low.controllers


def test_old_metadata_is_not_raised_to_levels_that_need_log_directories() -> None:
    image = cluster_of(1, features={METADATA_VERSION: 15})
    assert updated(image, FeatureUpdate(METADATA_VERSION, 16, UP)).metadata_version == 16
    with pytest.raises(InvalidUpdateVersionError, match="does not raise metadata"):
        updated(image, FeatureUpdate(METADATA_VERSION, 17, UP))
    newer = cluster_of(1, features={METADATA_VERSION: 17})
    assert updated(newer, FeatureUpdate(METADATA_VERSION, 30, UP)).metadata_version == 30


def test_kraft_version_is_checked_and_not_written() -> None:
    image = cluster_of(1)
    asked = FeatureUpdate(KRAFT_VERSION, 1, UP)
    for level in (0, 1):
        assert update_features(image, [asked], replace(ME, kraft_version=level)).records == ()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (UP, "either safe or unsafe downgrade"),
        (DOWN, "Can't downgrade the version of this feature."),
        (UpgradeType.UNSAFE_DOWNGRADE, "Can't downgrade the version of this feature."),
    ],
)
def test_bad_input_voters_in_the_log_stay_there(how: UpgradeType, why: str) -> None:
    with pytest.raises(InvalidUpdateVersionError, match=why):
        updated(
            cluster_of(1), FeatureUpdate(KRAFT_VERSION, 0, how), me=replace(ME, kraft_version=1)
        )


def test_bad_input_a_feature_that_is_named_twice_is_refused() -> None:
    twice = FeatureUpdate(ELR_VERSION, 0, DOWN), FeatureUpdate(ELR_VERSION, 1, UP)
    with pytest.raises(InvalidRequestError, match="named 2 times"):
        updated(cluster_of(1), *twice)
    assert update_features(cluster_of(1), (), ME).records == (), "none is fine"
