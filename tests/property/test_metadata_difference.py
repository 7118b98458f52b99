"""Whoever follows the difference of two images ends where the second image is."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metadata_topic.image.difference import difference
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, make
from runtime.work import Steps

Topics = dict[str, tuple[int, list[int], str]]
"""Name to (which id, leader of each partition, value of one config; empty: none)."""
topics = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(
        st.integers(0, 2), st.lists(st.integers(1, 3), max_size=3), st.sampled_from(["", "1", "2"])
    ),
)
brokers = st.dictionaries(st.integers(1, 4), st.integers(5, 7), max_size=4)


def topic_id(name: str, which: int) -> bytes:
    return (name.encode() + bytes([which])).ljust(16, b"-")


def image_of(topics: Topics, brokers: dict[int, int], end: int) -> MetadataImage:
    records: list[MetadataRecord] = []
    for name, (which, leaders, value) in topics.items():
        found = topic_id(name, which)
        records.append(make("TopicRecord", name=name, topic_id=found))
        for partition, leader in enumerate(leaders):
            replicas: dict[str, Any] = {"replicas": [1, 2, 3], "isr": [leader], "leader": leader}
            records.append(
                make("PartitionRecord", topic_id=found, partition_id=partition, **replicas)
            )
        if value:
            records.append(
                make("ConfigRecord", resource_type=2, resource_name=name, name="k", value=value)
            )
    records += [
        make("RegisterBrokerRecord", broker_id=one, broker_epoch=epoch, incarnation_id=bytes(16))
        for one, epoch in brokers.items()
    ]
    loader = ImageLoader(EMPTY_IMAGE)
    for record in records:
        loader.add(record)
    loader.end_of_batch(Provenance(end, 1, 1))
    return loader.take()[0]


def partitions_of(image: MetadataImage) -> dict[tuple[bytes, int], object]:
    return {
        (topic.id, partition): state
        for topic in image.topics_by_id.values()
        for partition, state in topic.partitions.items()
    }


@given(topics, topics, brokers, brokers)
def test_a_follower_of_the_difference_ends_at_the_new_image(
    before: Topics, after: Topics, old_brokers: dict[int, int], new_brokers: dict[int, int]
) -> None:
    old, new = image_of(before, old_brokers, 5), image_of(after, new_brokers, 9)
    delta = difference(old, new)

    kept = {one: topic.name for one, topic in old.topics_by_id.items()}
    for one, gone in delta.deleted_topics.items():
        assert kept.pop(one) == gone.name
    for one in delta.created_topics:
        assert one not in kept
        kept[one] = new.topics_by_id[one].name
    assert kept == {one: topic.name for one, topic in new.topics_by_id.items()}

    held = {
        place: state
        for place, state in partitions_of(old).items()
        if place[0] not in delta.deleted_topics
    }
    for one, changed in delta.changed_partitions.items():
        for partition in changed:
            held.pop((one, partition), None)
            state = new.topics_by_id[one].partitions.get(partition)
            if state is not None:
                held[one, partition] = state
    assert held == partitions_of(new)

    configs = dict(old.configs)
    for key in delta.changed_configs:
        configs.pop(key, None)
        if key in new.configs:
            configs[key] = new.configs[key]
    assert configs == dict(new.configs)

    changed_brokers = {
        one for one in {*old_brokers, *new_brokers} if old_brokers.get(one) != new_brokers.get(one)
    }
    assert delta.changed_brokers == changed_brokers
    assert not delta.is_empty


@given(topics, brokers)
def test_of_two_equal_images_nothing_is_different(topics: Topics, brokers: dict[int, int]) -> None:
    delta = difference(image_of(topics, brokers, 5), image_of(topics, brokers, 9))
    assert not delta.created_topics | delta.deleted_topics.keys() | delta.changed_partitions.keys()
    assert not delta.changed_configs | delta.changed_brokers  # type: ignore[operator]


def test_a_topic_made_anew_under_its_name_inherits_nothing() -> None:
    """Also its config has changed, with the same value."""
    old = image_of({"a": (0, [1, 1], "1")}, {}, 5)
    new = image_of({"a": (1, [1], "1")}, {}, 9)
    delta = difference(old, new)
    assert list(delta.deleted_topics) == [topic_id("a", 0)]
    assert delta.created_topics == {topic_id("a", 1)}
    assert delta.changed_partitions == {topic_id("a", 1): {0}}
    assert delta.changed_configs == {(2, "a")}


def test_a_large_difference_is_made_in_steps() -> None:
    many: Topics = {f"t{n}": (0, [1] * 100, "1") for n in range(200)}
    old, new = image_of({}, {}, 5), image_of(many, {}, 9)
    steps: Steps[object] = difference.steps(old, new)
    assert sum(1 for _ in steps) >= 200 * 100 // 3_000
