"""Rules for the registration of a broker: cluster id, features, log directories.

Source: Kafka's ClusterControlManager; KIP-584 (features), KIP-858 (directories).
"""

from typing import Final

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.errors import (
    InconsistentClusterIdError,
    InvalidRegistrationError,
    UnsupportedFeatureError,
)
from metadata_topic.image.image import KRAFT_VERSION, METADATA_VERSION, MetadataImage
from metadata_topic.image.records import partition_record_version

_RESERVED_IDS_END: Final = 100
_PLACE_HASH_BYTES: Final = 32


def check_cluster(asked: str, ours: str) -> None:
    """Check that a broker's request is for this cluster.

    Raises:
        InconsistentClusterIdError: It is for another one.
    """
    if asked != ours:
        raise InconsistentClusterIdError(f"Expected cluster id {ours}, but got {asked}.")


def check_registration(
    image: MetadataImage, registration: Registration, *, kraft_version: int
) -> None:
    """Check that a broker can join this cluster.

    Raises:
        UnsupportedFeatureError: It does not support a finalised level; names the feature.
        InvalidRegistrationError: Its log directories are invalid, it names no metadata.version, or
            the hash of its remote store has a wrong length.
    """
    if METADATA_VERSION not in registration.features:
        raise InvalidRegistrationError(
            f"Broker {registration.node_id} does not say which levels of {METADATA_VERSION} it can "
            "do."
        )
    levels = {METADATA_VERSION: 0, **image.features, KRAFT_VERSION: kraft_version}
    for name, level in levels.items():
        low, high = registration.features.get(name, (0, 0))
        if level and not low <= level <= high:
            raise UnsupportedFeatureError(
                f"Broker {registration.node_id} cannot register: {name} is finalised at level "
                f"{level}, and it can do {low} to {high}. Use another version of the broker, or "
                "finalise another level."
            )
    for name, (low, high) in registration.features.items():
        if not levels.get(name) and low > 0 and name != METADATA_VERSION:
            raise UnsupportedFeatureError(
                f"Broker {registration.node_id} cannot register: {name} is not finalised, and it "
                f"needs level {low} to {high}."
            )
    store = registration.remote_store
    if store is not None and len(store.place_hash) != _PLACE_HASH_BYTES:
        raise InvalidRegistrationError(
            f"Broker {registration.node_id} says that it has a remote store, and its place is no "
            f"hash of {_PLACE_HASH_BYTES} bytes."
        )
    if partition_record_version(image.metadata_version) >= 1:
        _check_directories(image, registration)


def _check_directories(image: MetadataImage, registration: Registration) -> None:
    directories = registration.log_dirs
    if not directories:
        raise InvalidRegistrationError("No directories specified in request.")
    if any(_is_reserved(one) for one in directories):
        raise InvalidRegistrationError("Reserved directory id in request.")
    asked = set(directories)
    if len(asked) < len(directories):
        raise InvalidRegistrationError("Duplicate directory id in request.")
    for broker in image.brokers.values():
        if broker.id != registration.node_id and not asked.isdisjoint(broker.log_dirs):
            shared = next(one for one in broker.log_dirs if one in asked)
            raise InvalidRegistrationError(
                f"Broker {broker.id} is already registered with directory {uuid_to_text(shared)}; "
                "a copied directory needs an id of its own."
            )


def _is_reserved(directory_id: bytes) -> bool:
    return directory_id == ZERO_UUID or int.from_bytes(directory_id, "big") < _RESERVED_IDS_END
