import pytest

from kafka_protocol.types import ZERO_UUID
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.difference import difference
from metadata_topic.image.image import EMPTY_IMAGE
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import (
    DIRECTORY_UNASSIGNED,
    RECOVERED,
    RECOVERING,
    BrokenMetadataLogError,
    Provenance,
)
from metadata_topic.image.records import (
    MetadataRecord,
    UnknownMetadataRecordError,
    decode_record,
    encode_record,
    make,
)
from metadata_topic.image.replay import replay
from metadata_topic.image.snapshot_records import snapshot_records
from tests.support.samples.metadata import apply, cluster_of

T = b"t" * 16
BEGIN, END = make("BeginTransactionRecord", name="x"), make("EndTransactionRecord")
ABORT = make("AbortTransactionRecord")


def topic(name: str = "t", topic_id: bytes = T) -> MetadataRecord:
    return make("TopicRecord", name=name, topic_id=topic_id)


def partition(**fields: object) -> MetadataRecord:
    defaults: dict[str, object] = {
        "partition_id": 0,
        "topic_id": T,
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 6,
        "directories": [b"1" * 16, b"2" * 16],
    }
    return make("PartitionRecord", 2, **{**defaults, **fields})


def change(**fields: object) -> MetadataRecord:
    return make("PartitionChangeRecord", 2, partition_id=0, topic_id=T, **fields)


def test_naming_a_leader_raises_the_epoch_also_if_it_is_the_same() -> None:
    image = apply(EMPTY_IMAGE, [topic(), partition(), change(leader=1)])
    after = image.topics_by_name["t"].partitions[0]
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 5, 7)


def test_any_change_raises_the_partition_epoch_alone() -> None:
    image = apply(EMPTY_IMAGE, [topic(), partition(), change(isr=[1])])
    after = image.topics_by_name["t"].partitions[0]
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((1,), 4, 7)


def test_replicas_keep_their_directories_and_new_ones_have_none_yet() -> None:
    image = apply(EMPTY_IMAGE, [topic(), partition(), change(replicas=[3, 2])])
    after = image.topics_by_name["t"].partitions[0]
    assert after.directories == (DIRECTORY_UNASSIGNED, b"2" * 16)


def test_partitions_of_old_records_have_unknown_directories() -> None:
    image = apply(EMPTY_IMAGE, [topic(), partition(directories=[])])
    assert image.topics_by_name["t"].partitions[0].directory_of(2) == ZERO_UUID


def test_a_name_can_be_used_again_at_once() -> None:
    other = b"u" * 16
    image = apply(EMPTY_IMAGE, [topic(), partition()])
    image = apply(image, [make("RemoveTopicRecord", topic_id=T), topic("t", other)])
    assert image.topics_by_name["t"].id == other
    assert set(image.topics_by_id) == {other}
    assert image.topics_by_name["t"].partitions == {}


def test_a_delta_names_each_topic_whose_removal_was_read() -> None:
    loader = load(topic(), topic("u", b"u" * 16), make("RemoveTopicRecord", topic_id=T))
    image, first = loader.take()
    assert (first.removed_topics, set(first.deleted_topics)) == ({T}, set())
    kept = apply(EMPTY_IMAGE, [topic("v", b"v" * 16)])
    assert difference(image, kept).removed_topics == set(), "what is missing proves nothing"


@pytest.mark.parametrize(
    "record",
    [
        partition(),
        change(),
        make("RemoveTopicRecord", topic_id=T),
        make("UnregisterBrokerRecord", broker_id=9),
        make("FenceBrokerRecord", id=9),
        make("UnfenceBrokerRecord", id=1, epoch=99),
        make("BrokerRegistrationChangeRecord", broker_id=1, broker_epoch=99),
        make("ClearElrRecord", topic_name="t"),
    ],
)
def test_a_record_about_nothing_is_an_error(record: MetadataRecord) -> None:
    with pytest.raises(BrokenMetadataLogError):
        apply(cluster_of(1), [record])


def load(*records: MetadataRecord) -> ImageLoader:
    loader = ImageLoader(EMPTY_IMAGE)
    for offset, record in enumerate(records):
        loader.add(record)
        loader.end_of_batch(Provenance(offset, 1, 1))
    return loader


def test_records_of_a_transaction_count_when_it_ends() -> None:
    loader = load(topic("a", b"a" * 16), BEGIN, topic())
    image, _ = loader.take()
    assert set(image.topics_by_name) == {"a"}
    assert image.provenance.offset == 0
    loader.add(END)
    loader.end_of_batch(Provenance(3, 1, 1))
    image, delta = loader.take()
    assert set(image.topics_by_name) == {"a", "t"}
    assert delta.created_topics == {T}
    assert image.provenance.offset == 3


def test_an_aborted_transaction_leaves_nothing() -> None:
    image, _ = load(BEGIN, topic(), ABORT, topic("b", b"b" * 16)).take()
    assert set(image.topics_by_name) == {"b"}


@pytest.mark.parametrize("records", [(BEGIN, BEGIN), (END,), (ABORT,), (BEGIN, END, END)])
def test_transactions_neither_nest_nor_end_twice(records: tuple[MetadataRecord, ...]) -> None:
    with pytest.raises(BrokenMetadataLogError):
        load(*records)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01",
        b"\x00\x02\x00",
        b"\x01\x63\x00\x00",
        b"\x01\x02\x09\x00",
        encode_record(topic())[:-1],
        encode_record(topic()) + b"\x00",
    ],
    ids=["empty", "cut", "frame 0", "type 99", "version 9", "cut struct", "trailing byte"],
)
def test_a_record_that_does_not_decode_is_fatal(value: bytes) -> None:
    with pytest.raises(UnknownMetadataRecordError):
        decode_record(value)


def unclean_epoch(*records: MetadataRecord) -> int:
    """What an image, and the image that its snapshot makes, say after these records."""
    image = apply(EMPTY_IMAGE, [topic(), *records])
    again = apply(EMPTY_IMAGE, snapshot_records(image))
    (told,) = {each.topics_by_name["t"].partitions[0].unclean_epoch for each in (image, again)}
    return told


UNCLEAN = change(leader=2, isr=[2], leader_recovery_state=RECOVERING)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([partition(isr=[1])], -1),
        ([partition(isr=[1]), change(leader=1)], -1),
        ([partition(isr=[1]), UNCLEAN], 5),
        ([partition(isr=[1]), UNCLEAN, change(leader=-1), change(leader=2)], 5),
        ([partition(isr=[1]), UNCLEAN, change(leader=-1), change(leader=1, isr=[1])], 7),
        ([partition(isr=[1]), UNCLEAN, change(isr=[2, 1])], 5),
        ([partition(isr=[1]), UNCLEAN, change(leader_recovery_state=RECOVERED)], -1),
        ([partition(leader_recovery_state=RECOVERING)], 4),
        ([partition(leader_recovery_state=RECOVERING, unclean_epoch=2)], 2),
        ([partition(unclean_epoch=2)], -1),
    ],
    ids=[
        "none",
        "a clean election",
        "elected uncleanly",
        "the same leader again",
        "uncleanly once more within one recovery",
        "a follower in sync",
        "recovered",
        "a record of Kafka, which names no epoch",
        "a record of ours",
        "recovered by a record",
    ],
)
def test_the_epoch_of_an_unclean_election_is_known_until_its_recovery(
    records: list[MetadataRecord], expected: int
) -> None:
    assert unclean_epoch(*records) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([change(leader=2)], (1, 0)),
        ([change(leader=1)], (0, 0)),
        ([change(leader=-1)], (0, 0)),
        ([change(isr=[1])], (0, 0)),
        ([change(leader=-1), change(leader=1)], (1, 0)),
        ([change(leader=-1, isr=[1]), change(leader=2, isr=[2], leader_recovery_state=1)], (1, 1)),
        (
            [
                change(leader=2, isr=[2], leader_recovery_state=1),
                change(leader=-1),
                change(leader=2),
                change(leader=1, isr=[1]),
            ],
            (3, 2),
        ),
    ],
    ids=["another", "the same", "none", "ISR alone", "back", "unclean", "unclean twice"],
)
def test_a_delta_counts_the_leaders_that_are_elected(
    changes: list[MetadataRecord], expected: tuple[int, int]
) -> None:
    delta = MetadataDelta(apply(EMPTY_IMAGE, [topic(), partition()]))
    for one in changes:
        replay(delta, one)
    assert (delta.elections, delta.unclean_elections) == expected
