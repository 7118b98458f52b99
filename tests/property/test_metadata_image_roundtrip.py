"""Random metadata survives the way through records, snapshots and slices of a log."""

from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, decode_record, encode_record, make
from metadata_topic.image.replay import replay
from metadata_topic.image.snapshot_records import snapshot_records
from metadata_topic.quorum.snapshot.snapshots import SnapshotId, read_snapshot, snapshot_chunks
from metadata_topic.raft.voters import majority_offset

NAMES = ["a", "b", "c.d", "größe"]
IDS = [bytes([n]) * 16 for n in range(1, 6)]
BROKERS = [0, 1, 7]
ids = st.sampled_from(IDS)
int_lists = st.lists(st.integers(0, 9), max_size=3)
maybe_ints = st.none() | int_lists


def node_fields(name: str) -> st.SearchStrategy[dict[str, object]]:
    from kafka_protocol.wire.codec import message

    cls = message(name).cls
    endpoint = st.builds(
        cls.EndPoints,
        name=st.text(max_size=5),
        host=st.text(max_size=5),
        port=st.integers(0, 65535),
        security_protocol=st.integers(0, 3),
    )
    feature = st.builds(
        cls.Features,
        name=st.sampled_from(["metadata.version", "x"]),
        min_supported_version=st.integers(0, 5),
        max_supported_version=st.integers(5, 30),
    )
    return st.fixed_dictionaries(
        {
            "end_points": st.lists(endpoint, max_size=2),
            "features": st.lists(feature, max_size=2, unique_by=lambda f: f.name),
        }
    )


@st.composite
def record(draw: st.DrawFn) -> MetadataRecord:
    kind = draw(st.sampled_from(sorted(MAKERS)))
    return MAKERS[kind](draw)


def register(draw: st.DrawFn) -> MetadataRecord:
    return make(
        "RegisterBrokerRecord",
        4,
        broker_id=draw(st.sampled_from(BROKERS)),
        broker_epoch=5,
        incarnation_id=draw(ids),
        rack=draw(st.none() | st.text(max_size=3)),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=draw(st.lists(ids, max_size=2)),
        cordoned_log_dirs=draw(st.none() | st.lists(ids, max_size=2)),
        remote_store_class=draw(st.none() | st.text(max_size=3)),
        remote_store_place=draw(st.none() | st.binary(max_size=3)),
        **draw(node_fields("RegisterBrokerRecord")),
    )


def quota(draw: st.DrawFn) -> MetadataRecord:
    from kafka_protocol.wire.codec import message

    part = message("ClientQuotaRecord").cls.Entity
    kinds = draw(st.lists(st.sampled_from(["user", "client-id"]), min_size=1, unique=True))
    return make(
        "ClientQuotaRecord",
        entity=[
            part(entity_type=k, entity_name=draw(st.none() | st.text(max_size=3))) for k in kinds
        ],
        key=draw(st.sampled_from(["producer_byte_rate", "request_percentage"])),
        value=draw(st.floats(0, 1e9)),
        remove=draw(st.booleans()),
    )


MAKERS = {
    "topic": lambda draw: make(
        "TopicRecord", name=draw(st.sampled_from(NAMES)), topic_id=draw(ids)
    ),
    "remove": lambda draw: make("RemoveTopicRecord", topic_id=draw(ids)),
    "partition": lambda draw: make(
        "PartitionRecord",
        2,
        partition_id=draw(st.integers(0, 2)),
        topic_id=draw(ids),
        replicas=draw(int_lists),
        isr=draw(int_lists),
        removing_replicas=draw(int_lists),
        adding_replicas=draw(int_lists),
        leader=draw(st.integers(-1, 3)),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(st.integers(0, 100)),
        partition_epoch=draw(st.integers(0, 100)),
        directories=draw(st.lists(ids, max_size=3)),
        eligible_leader_replicas=draw(maybe_ints),
        last_known_elr=draw(maybe_ints),
        unclean_epoch=draw(st.integers(-1, 100)),
    ),
    "change": lambda draw: make(
        "PartitionChangeRecord",
        2,
        partition_id=draw(st.integers(0, 2)),
        topic_id=draw(ids),
        isr=draw(maybe_ints),
        leader=draw(st.integers(-2, 3)),
        replicas=draw(maybe_ints),
        removing_replicas=draw(maybe_ints),
        adding_replicas=draw(maybe_ints),
        leader_recovery_state=draw(st.integers(-1, 1)),
        directories=draw(st.none() | st.lists(ids, max_size=3)),
        eligible_leader_replicas=draw(maybe_ints),
        last_known_elr=draw(maybe_ints),
    ),
    "clear elr": lambda draw: make(
        "ClearElrRecord", topic_name=draw(st.sampled_from(["", *NAMES]))
    ),
    "config": lambda draw: make(
        "ConfigRecord",
        resource_type=draw(st.sampled_from([2, 4, 16, 32])),
        resource_name=draw(st.sampled_from(["", "1", *NAMES])),
        name=draw(st.sampled_from(["k", "l", "remote.storage.enable"])),
        value=draw(st.none() | st.text(max_size=5) | st.just("true")),
    ),
    "register": register,
    "unregister": lambda draw: make(
        "UnregisterBrokerRecord", broker_id=draw(st.sampled_from(BROKERS)), broker_epoch=5
    ),
    "fence": lambda draw: make("FenceBrokerRecord", id=draw(st.sampled_from(BROKERS)), epoch=5),
    "unfence": lambda draw: make("UnfenceBrokerRecord", id=draw(st.sampled_from(BROKERS)), epoch=5),
    "broker change": lambda draw: make(
        "BrokerRegistrationChangeRecord",
        3,
        broker_id=draw(st.sampled_from(BROKERS)),
        broker_epoch=5,
        fenced=draw(st.integers(-1, 1)),
        in_controlled_shutdown=draw(st.integers(0, 1)),
        log_dirs=draw(st.lists(ids, max_size=2)),
        cordoned_log_dirs=draw(st.none() | st.lists(ids, max_size=2)),
    ),
    "controller": lambda draw: make(
        "RegisterControllerRecord",
        controller_id=draw(st.integers(1, 3)),
        incarnation_id=draw(ids),
        zk_migration_ready=draw(st.booleans()),
        **draw(node_fields("RegisterControllerRecord")),
    ),
    "feature": lambda draw: make(
        "FeatureLevelRecord",
        name=draw(st.sampled_from(["group.version", "transaction.version"])),
        feature_level=draw(st.integers(0, 2)),
    ),
    "producer ids": lambda draw: make(
        "ProducerIdsRecord", broker_id=1, next_producer_id=draw(st.integers(0, 2**63 - 1))
    ),
    "acl": lambda draw: make(
        "AccessControlEntryRecord", id=draw(ids), resource_name=draw(st.text(max_size=3))
    ),
    "remove acl": lambda draw: make("RemoveAccessControlEntryRecord", id=draw(ids)),
    "scram": lambda draw: make(
        "UserScramCredentialRecord",
        name=draw(st.sampled_from(NAMES)),
        mechanism=1,
        salt=draw(st.binary(max_size=4)),
    ),
    "remove scram": lambda draw: make(
        "RemoveUserScramCredentialRecord", name=draw(st.sampled_from(NAMES)), mechanism=1
    ),
    "token": lambda draw: make("DelegationTokenRecord", token_id=draw(st.sampled_from(NAMES))),
    "remove token": lambda draw: make(
        "RemoveDelegationTokenRecord", token_id=draw(st.sampled_from(NAMES))
    ),
    "quota": quota,
    "no-op": lambda draw: make(
        "NoOpRecord",
        removed_tiered_topics=draw(st.lists(ids, max_size=2)),
        emptied_tiered_topics=draw(st.lists(ids, max_size=2)),
    ),
    "zk": lambda draw: make("ZkMigrationStateRecord", zk_migration_state=2),
}

histories = st.lists(record(), max_size=60)


def is_possible(delta: MetadataDelta, r: MetadataRecord) -> bool:
    """Whether a controller could have written this record now."""
    value = r.value
    match r.name:
        case "TopicRecord":
            return delta.topic(value.topic_id) is None and delta.topic_named(value.name) is None
        case "RemoveTopicRecord" | "PartitionRecord":
            return delta.topic(value.topic_id) is not None
        case "PartitionChangeRecord":
            topic = delta.topic(value.topic_id)
            return topic is not None and value.partition_id in topic.partitions
        case "ClearElrRecord":
            return not value.topic_name or delta.topic_named(value.topic_name) is not None
        case "UnregisterBrokerRecord" | "BrokerRegistrationChangeRecord":
            return delta.broker(value.broker_id) is not None
        case "FenceBrokerRecord" | "UnfenceBrokerRecord":
            return delta.broker(value.id) is not None
        case _:
            return True


def possible(history: list[MetadataRecord]) -> list[MetadataRecord]:
    """The history without records that contradict the ones before them."""
    first = make("FeatureLevelRecord", name=METADATA_VERSION, feature_level=30)
    delta, taken = MetadataDelta(EMPTY_IMAGE), []
    for r in (first, *history):
        if is_possible(delta, r):
            replay(delta, r)
            taken.append(r)
    return taken


def image_of(records: list[MetadataRecord], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    loader = ImageLoader(base)
    for r in records:
        loader.add(r)
    loader.end_of_batch(Provenance(len(records), 3, 4))
    return loader.take()[0]


def same(left: MetadataImage, right: MetadataImage) -> bool:
    return replace(left, provenance=Provenance()) == replace(right, provenance=Provenance())


@given(histories)
def test_a_snapshot_loads_to_the_same_image(history: list[MetadataRecord]) -> None:
    image = image_of(possible(history))
    data = b"".join(
        snapshot_chunks(
            snapshot_records(image),
            snapshot_id=SnapshotId(10, 3),
            last_contained_timestamp_ms=5,
            now_ms=lambda: 6,
        )
    )
    assert same(image_of(read_snapshot(data).records), image)


@given(histories)
def test_records_in_memory_and_from_bytes_make_the_same_image(
    history: list[MetadataRecord],
) -> None:
    records = possible(history)
    assert image_of([decode_record(encode_record(r)) for r in records]) == image_of(records)


@given(histories, st.data())
def test_many_small_steps_make_the_same_image_as_one(
    history: list[MetadataRecord], data: st.DataObject
) -> None:
    records = possible(history)
    loader = ImageLoader(EMPTY_IMAGE)
    before: list[tuple[MetadataImage, list[object]]] = []
    for offset, r in enumerate(records):
        loader.add(r)
        loader.end_of_batch(Provenance(offset, 3, 4))
        if data.draw(st.booleans()):
            image, _ = loader.take()
            before.append((image, [repr(getattr(image, f.name)) for f in fields(image)]))
    assert same(loader.take()[0], image_of(records))
    for image, seen in before:
        assert [repr(getattr(image, f.name)) for f in fields(image)] == seen, "an image changed"


@given(histories, histories)
def test_a_delta_names_everything_that_differs(
    first: list[MetadataRecord], second: list[MetadataRecord]
) -> None:
    records = possible([*first, *second])
    base = image_of(records[: len(first)])
    delta = MetadataDelta(base)
    for r in records[len(first) :]:
        replay(delta, r)
    image = delta.image(Provenance())
    all_ids = {*base.topics_by_id, *image.topics_by_id}
    for topic_id in all_ids:
        old, new = base.topics_by_id.get(topic_id), image.topics_by_id.get(topic_id)
        if new is None:
            assert topic_id in delta.deleted_topics
        elif old is None:
            assert topic_id in delta.created_topics
        if new is not None:
            for index, partition in new.partitions.items():
                if old is None or old.partitions.get(index) != partition:
                    assert index in delta.changed_partitions[topic_id]
    for key in {*base.configs, *image.configs}:
        if base.configs.get(key) != image.configs.get(key):
            assert key in delta.changed_configs
    for broker_id in BROKERS:
        if base.brokers.get(broker_id) != image.brokers.get(broker_id):
            assert broker_id in delta.changed_brokers


@settings(max_examples=200)
@given(st.lists(st.integers(-1, 20), min_size=1, max_size=7))
def test_the_majority_offset_is_what_counting_says(ends: list[int]) -> None:
    majority = len(ends) // 2 + 1
    naive = max((e for e in ends if sum(other >= e for other in ends) >= majority), default=-1)
    assert majority_offset(ends, majority) == naive
