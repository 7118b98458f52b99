"""What tests of the metadata need: a small cluster."""

from collections.abc import Iterable

from metadata_topic.controller.brokers import Registration, register_broker, unfence_broker
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from metadata_topic.image.model import Endpoint, Provenance, RemoteStore
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.image.replay import replay_all


def apply(image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
    """The image after `records`, which follow at the next offsets."""
    taken = list(records)
    at = image.provenance
    provenance = Provenance(at.offset + len(taken), max(at.epoch, 1), at.timestamp_ms + 1)
    return replay_all(image, taken, provenance)[0]


def registration_of(
    broker_id: int,
    *,
    life: int = 1,
    rack: str | None = None,
    store: RemoteStore | None = None,
) -> Registration:
    """What broker `broker_id` says in its life number `life`; it has one log directory."""
    return Registration(
        broker_id,
        bytes([life]) * 16,
        (Endpoint("PLAINTEXT", "localhost", 9092 + broker_id),),
        SUPPORTED_FEATURES,
        rack,
        (bytes([100 + broker_id]) * 16,),
        remote_store=store,
    )


def cluster_of(*broker_ids: int, features: dict[str, int] | None = None) -> MetadataImage:
    """A cluster whose brokers are registered and unfenced, without topics."""
    levels = {METADATA_VERSION: 30, **(features or {})}
    image = apply(
        EMPTY_IMAGE,
        [make("FeatureLevelRecord", name=n, feature_level=level) for n, level in levels.items()],
    )
    for broker_id in broker_ids:
        image = started(image, broker_id)
    return image


def started(
    image: MetadataImage, broker_id: int, *, life: int = 1, store: RemoteStore | None = None
) -> MetadataImage:
    """The image after a broker registered and was unfenced."""
    registered: ControllerResult[int] = register_broker(
        image, registration_of(broker_id, life=life, store=store)
    )
    image = apply(image, registered.records)
    unfenced = unfence_broker(image, broker_id=broker_id, broker_epoch=registered.response)
    return apply(image, unfenced.records)
