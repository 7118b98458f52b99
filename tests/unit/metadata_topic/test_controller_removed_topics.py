"""Who comes onto the list of removed tiered topics besides by a removal, and who leaves it."""

import pytest

from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.errors import InvalidRequestError
from metadata_topic.controller.topic_deletion import (
    RemoteDataWish,
    delete_topics,
    note_emptied,
    wish_for_remote_data,
)
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, decode_record, encode_record, make
from metadata_topic.image.snapshot_records import removed_topics_records, snapshot_records
from tests.support.samples.metadata import apply, cluster_of

A, B, GONE = b"a" * 16, b"b" * 16, b"g" * 16
FORGET, KEEP = RemoteDataWish.FORGET, RemoteDataWish.KEEP


def config(topic: str, name: str, value: str | None) -> MetadataRecord:
    return make("ConfigRecord", resource_type=2, resource_name=topic, name=name, value=value)


@pytest.fixture
def image() -> MetadataImage:
    return apply(
        cluster_of(1),
        [
            make("TopicRecord", name="a", topic_id=A),
            config("a", "remote.storage.enable", "true"),
            make("TopicRecord", name="b", topic_id=B),
            config("b", "retention.ms", "true"),
        ],
    )


def removed_after(image: MetadataImage, topic: str) -> list[bytes]:
    after = apply(image, delete_topics(image, [(topic, ZERO_UUID)]).records)
    return list(after.removed_tiered_topics)


def through_a_snapshot(image: MetadataImage) -> MetadataImage:
    return apply(EMPTY_IMAGE, [decode_record(encode_record(r)) for r in snapshot_records(image)])


def test_only_what_was_tiered_is_remembered(image: MetadataImage) -> None:
    assert removed_after(image, "a") == [A]
    assert removed_after(image, "b") == []


@pytest.mark.parametrize("value", ["false", None])
def test_what_was_tiered_once_is_remembered_also_over_snapshots(
    image: MetadataImage, value: str | None
) -> None:
    image = apply(image, [config("a", "remote.storage.enable", value)])
    assert removed_after(image, "a") == [A]
    assert removed_after(through_a_snapshot(image), "a") == [A]


def test_a_topic_of_an_older_snapshot_that_dropped_its_remote_data_counts() -> None:
    records = [
        make("TopicRecord", name="c", topic_id=b"c" * 16),
        config("c", "remote.storage.enable", "false"),
        config("c", "remote.log.delete.on.disable", "true"),
    ]
    assert removed_after(apply(EMPTY_IMAGE, records), "c") == [b"c" * 16]


def test_a_snapshot_without_our_facts_has_none_of_our_fields(image: MetadataImage) -> None:
    for record in snapshot_records(image):
        assert record.name != "NoOpRecord"
        assert record.name != "TopicRecord" or not record.value.was_tiered


def test_an_unknown_id_is_forgotten_and_kept_after_all(image: MetadataImage) -> None:
    forgotten = apply(image, wish_for_remote_data(image, GONE, FORGET).records)
    assert list(forgotten.removed_tiered_topics) == [GONE]
    assert wish_for_remote_data(forgotten, GONE, FORGET).records == ()
    kept = apply(forgotten, wish_for_remote_data(forgotten, GONE, KEEP).records)
    assert list(kept.removed_tiered_topics) == []
    assert wish_for_remote_data(kept, GONE, KEEP).records == ()


@pytest.mark.parametrize("wish", [FORGET, KEEP])
@pytest.mark.parametrize("topic_id", [A, B, ZERO_UUID])
def test_what_exists_is_not_forgotten(
    image: MetadataImage, topic_id: bytes, wish: RemoteDataWish
) -> None:
    with pytest.raises(InvalidRequestError):
        wish_for_remote_data(image, topic_id, wish)


def test_only_what_is_on_the_list_leaves_it(image: MetadataImage) -> None:
    assert note_emptied(image, [A, GONE]).records == ()
    image = apply(image, wish_for_remote_data(image, GONE, FORGET).records)
    assert list(apply(image, note_emptied(image, [A, GONE]).records).removed_tiered_topics) == []


def test_a_hundred_thousand_removed_topics_fit_into_a_snapshot() -> None:
    ids = [number.to_bytes(16, "big") for number in range(1, 100_001)]
    records = list(removed_topics_records(removed=ids))
    assert sum(len(encode_record(record)) for record in records) < 1_700_000
    image = apply(EMPTY_IMAGE, records)
    assert list(image.removed_tiered_topics) == ids
    assert through_a_snapshot(image) == image


def test_a_hundred_thousand_removed_topics_are_replayed_in_short_steps() -> None:
    """Steps count records, whatever a record holds."""
    loader = ImageLoader(EMPTY_IMAGE)
    for record in removed_topics_records(removed=[n.to_bytes(16, "big") for n in range(100_000)]):
        loader.add(record)
    assert sum(1 for _ in loader.end_of_batch_steps(Provenance(1, 1, 1))) > 10
