"""The metadata hold the directory of every replica, and from when on that can be relied on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from metadata_topic.controller.brokers import Registration, register_broker
from metadata_topic.controller.directories import (
    FoundReplicas,
    ReplicaId,
    assign_directories,
    can_assign,
    forget_directory,
    known_directories,
    records_at_registration,
)
from metadata_topic.controller.errors import BrokerIdNotRegisteredError, StaleBrokerEpochError
from metadata_topic.image.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from metadata_topic.image.model import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
)
from metadata_topic.image.records import MetadataRecord, decode_record, encode_record, make
from metadata_topic.image.snapshot_records import snapshot_records
from tests.support.samples.metadata import apply, cluster_of, registration_of

TOPIC = b"t" * 16
A, B = b"a" * 16, b"b" * 16
NONE: Mapping[ReplicaId, bytes] = {}
OLD_VERSION = 16  # PartitionRecords of version 0: without directories


def replica(index: int) -> ReplicaId:
    return ReplicaId(TOPIC, index)


def registration(life: int, *, keeps: bool, dirs: Sequence[bytes] = (A, B)) -> Registration:
    return replace(registration_of(1, life=life), log_dirs=tuple(dirs), keeps_directories=keeps)


def registered(
    image: MetadataImage, life: int, *, keeps: bool = True, dirs: Sequence[bytes] = (A, B)
) -> MetadataImage:
    return apply(image, register_broker(image, registration(life, keeps=keeps, dirs=dirs)).records)


def with_topic(image: MetadataImage, *directories: bytes, version: int = 2) -> MetadataImage:
    """Partition 0, 1, ... of broker 1 in these directories; broker 2 has each as well, in `B`."""
    told = {} if version == 0 else {"directories": []}
    records = [make("TopicRecord", name="t", topic_id=TOPIC)]
    for index, directory in enumerate(directories):
        if version:
            told["directories"] = [B, directory]
        records.append(
            make(
                "PartitionRecord",
                version,
                partition_id=index,
                topic_id=TOPIC,
                replicas=[2, 1],
                isr=[2, 1],
                leader=2,
                leader_epoch=0,
                partition_epoch=0,
                **told,
            )
        )
    return apply(image, records)


def directories_of(image: MetadataImage, broker_id: int = 1) -> list[bytes]:
    partitions = image.topics_by_id[TOPIC].partitions
    return [partitions[index].directory_of(broker_id) for index in sorted(partitions)]


def at_registration(
    image: MetadataImage, found: Mapping[ReplicaId, bytes], *, is_missing_some: bool
) -> list[bytes]:
    records = records_at_registration(
        image, 1, FoundReplicas(found, NONE, is_missing_some=is_missing_some)
    )
    after = apply(image, records)
    assert directories_of(after, 2) == directories_of(image, 2)
    return directories_of(after)


# -- at a registration


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("is_missing_some", [True, False])
def test_what_was_found_is_noted_and_what_was_noted_stays(
    keeps: bool, is_missing_some: bool
) -> None:
    image = registered(cluster_of(2), 1, keeps=keeps)
    image = with_topic(image, DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, A, A, B, DIRECTORY_LOST)
    found = {replica(0): A, replica(1): B, replica(2): A, replica(3): B, replica(5): A}
    after = at_registration(image, found, is_missing_some=is_missing_some)
    assert after == [A, B, A, B, B, A]  # 3 was moved by hand, 4 is not there, 5 is back


@pytest.mark.parametrize("directory", [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING])
@pytest.mark.parametrize(
    ("keeps", "is_missing_some", "is_lost"),
    [(False, True, True), (False, False, False), (True, True, False), (True, False, False)],
)
def test_only_a_replica_of_before_the_rule_can_be_in_a_directory_that_is_missing(
    directory: bytes, keeps: bool, is_missing_some: bool, is_lost: bool
) -> None:
    image = with_topic(registered(cluster_of(2), 1, keeps=keeps), directory)
    after = at_registration(image, NONE, is_missing_some=is_missing_some)
    assert after == [DIRECTORY_LOST if is_lost else directory]


@pytest.mark.parametrize("is_missing_some", [True, False])
def test_what_is_refused_at_the_first_registration_is_not_taken_for_new_at_the_next(
    is_missing_some: bool,
) -> None:
    image = with_topic(cluster_of(2), DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, A)
    refused = {replica(0): A, replica(1): DIRECTORY_LOST, replica(2): B}
    for before, expected in (
        (image, [A, DIRECTORY_LOST, A]),
        (registered(image, 1), [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, A]),
    ):
        records = records_at_registration(
            before, 1, FoundReplicas(NONE, refused, is_missing_some=is_missing_some)
        )
        assert directories_of(apply(before, records)) == expected


def test_a_broker_that_was_never_registered_settles_its_replicas_as_well() -> None:
    image = with_topic(cluster_of(2), DIRECTORY_UNASSIGNED)
    assert at_registration(image, NONE, is_missing_some=True) == [DIRECTORY_LOST]


def test_an_ordinary_start_writes_nothing() -> None:
    image = with_topic(registered(cluster_of(2), 1), A, B)
    found = {replica(0): A, replica(1): B}
    assert (
        records_at_registration(image, 1, FoundReplicas(found, NONE, is_missing_some=False)) == []
    )


def test_replicas_of_others_and_topics_that_are_gone_are_passed_over() -> None:
    image = with_topic(registered(cluster_of(2), 1), A)
    found = {ReplicaId(b"x" * 16, 0): B, replica(7): B}
    assert records_at_registration(image, 1, FoundReplicas(found, NONE, is_missing_some=True)) == []
    assert records_at_registration(image, 3, FoundReplicas(NONE, NONE, is_missing_some=True)) == []


# -- metadata.version without directories


def test_an_old_metadata_version_has_no_directories_and_keeps_no_rule() -> None:
    image = with_topic(cluster_of(2, features={METADATA_VERSION: OLD_VERSION}), A, version=0)
    assert not can_assign(image)
    image = registered(image, 1)
    assert image.brokers[1].directories_assigned_from == -1
    assert directories_of(image) == [DIRECTORY_MIGRATING]
    found = {replica(0): A}
    assert records_at_registration(image, 1, FoundReplicas(found, NONE, is_missing_some=True)) == []


def test_the_rule_begins_with_the_first_registration_after_the_upgrade() -> None:
    image = with_topic(cluster_of(2, features={METADATA_VERSION: OLD_VERSION}), A, version=0)
    image = registered(image, 1)
    level = make("FeatureLevelRecord", name=METADATA_VERSION, feature_level=30)
    image = apply(image, [level])
    assert at_registration(image, NONE, is_missing_some=True) == [DIRECTORY_LOST]
    assert at_registration(image, {replica(0): A}, is_missing_some=False) == [A]
    epoch = image.provenance.end_offset
    assert registered(image, 2).brokers[1].directories_assigned_from >= epoch


# -- the tagged field


def test_the_rule_holds_from_the_first_registration_that_keeps_it() -> None:
    image = registered(cluster_of(2), 1, keeps=False)
    assert image.brokers[1].directories_assigned_from == -1
    image = registered(image, 2)
    first = image.brokers[1].directories_assigned_from
    assert first == image.brokers[1].epoch
    image = registered(image, 3)
    assert image.brokers[1].directories_assigned_from == first < image.brokers[1].epoch


def test_a_life_that_does_not_keep_the_rule_ends_it() -> None:
    """Apache Kafka served replicas here: what is unassigned may have records."""
    image = registered(registered(cluster_of(2), 1), 2, keeps=False)
    assert image.brokers[1].directories_assigned_from == -1
    image = with_topic(image, DIRECTORY_UNASSIGNED)
    assert at_registration(image, NONE, is_missing_some=True) == [DIRECTORY_LOST]
    again = registered(image, 3)
    assert again.brokers[1].directories_assigned_from == again.brokers[1].epoch


def test_the_same_incarnation_that_registers_again_keeps_the_place() -> None:
    image = registered(cluster_of(2), 1)
    assert registered(image, 1).brokers[1] == image.brokers[1]


def test_a_snapshot_keeps_the_rule() -> None:
    image = with_topic(registered(cluster_of(2), 1), A, DIRECTORY_UNASSIGNED, DIRECTORY_LOST)
    copied = apply(EMPTY_IMAGE, [decoded(record) for record in snapshot_records(image)])
    assert copied.brokers == image.brokers
    assert copied.brokers[1].directories_assigned_from >= 0
    assert directories_of(copied) == directories_of(image)


def decoded(record: MetadataRecord) -> MetadataRecord:
    return decode_record(encode_record(record))


def test_a_reader_without_the_field_skips_it() -> None:
    """The bytes are those of Kafka's record, with a tagged field behind that it passes over."""
    plain, with_field = (
        encode_record(register_broker(cluster_of(), registration(9, keeps=keeps)).records[-1])
        for keeps in (False, True)
    )
    count_at = next(n for n, byte in enumerate(plain) if byte != with_field[n])
    assert with_field[count_at] == plain[count_at] + 1  # tagged fields, of which Kafka skips ours
    assert with_field[count_at + 1 : len(plain)] == plain[count_at + 1 :]
    tag, tag_more, size_bytes, *value = with_field[len(plain) :]
    assert tag & 0x7F | tag_more << 7 >= 100  # far from those that Kafka will use
    assert len(value) == size_bytes == 8


# -- while the broker runs


def test_a_new_replica_is_assigned_and_the_other_brokers_stay() -> None:
    image = with_topic(registered(cluster_of(2), 1), DIRECTORY_UNASSIGNED, A, DIRECTORY_UNASSIGNED)
    assignments = {replica(0): A, replica(1): A, ReplicaId(b"x" * 16, 0): A, replica(9): A}
    result = assign_directories(
        image, broker_id=1, broker_epoch=image.brokers[1].epoch, assignments=assignments
    )
    assert len(result.records) == 1  # what is noted already, and what is gone, is passed over
    after = apply(image, result.records)
    assert directories_of(after) == [A, A, DIRECTORY_UNASSIGNED]
    assert directories_of(after, 2) == [B, B, B]
    before = image.topics_by_id[TOPIC].partitions[0]
    now = after.topics_by_id[TOPIC].partitions[0]
    assert (now.leader, now.leader_epoch, now.isr) == (2, 0, before.isr)


def test_only_the_present_life_assigns() -> None:
    image = with_topic(registered(registered(cluster_of(2), 1), 2), DIRECTORY_UNASSIGNED)
    old = image.brokers[1].epoch - 1
    with pytest.raises(StaleBrokerEpochError):
        assign_directories(image, broker_id=1, broker_epoch=old, assignments={replica(0): A})
    with pytest.raises(BrokerIdNotRegisteredError):
        assign_directories(image, broker_id=3, broker_epoch=1, assignments={replica(0): A})


# -- what is known, and given up


def test_registered_and_assigned_directories_are_known() -> None:
    image = with_topic(
        registered(cluster_of(2), 1, dirs=[A]), DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING
    )
    assert known_directories(image, 1) == {A}
    image = with_topic(registered(cluster_of(2), 1, dirs=[A]), B, DIRECTORY_LOST)
    assert known_directories(image, 1) == {A, B, DIRECTORY_LOST}
    assert known_directories(image, 3) == set()


def test_a_directory_that_is_forgotten_is_known_no_more_and_its_replicas_begin_anew() -> None:
    image = with_topic(registered(cluster_of(2), 1), A, B, B, DIRECTORY_UNASSIGNED)
    result = forget_directory(image, 1, B, working=[A])
    assert result.response == [("t", 1), ("t", 2)]
    after = apply(image, result.records)
    assert directories_of(after) == [A, *[DIRECTORY_UNASSIGNED] * 3]
    assert directories_of(after, 2) == [B] * 4  # the other broker's are its own
    assert known_directories(after, 1) == {A}
    assert forget_directory(after, 1, B, working=[A]).records == ()


def test_the_last_directory_can_be_forgotten() -> None:
    image = with_topic(registered(cluster_of(2), 1, dirs=[B]), B)
    after = apply(image, forget_directory(image, 1, B, working=[]).records)
    assert known_directories(after, 1) == set()


def test_replicas_whose_directory_was_never_known_are_forgotten_as_lost() -> None:
    image = with_topic(registered(cluster_of(2), 1), DIRECTORY_LOST, A)
    result = forget_directory(image, 1, DIRECTORY_LOST, working=[A, B])
    assert result.response == [("t", 0)]
    assert directories_of(apply(image, result.records)) == [DIRECTORY_UNASSIGNED, A]


def test_a_directory_that_is_there_is_not_forgotten() -> None:
    image = with_topic(registered(cluster_of(2), 1), A)
    result = forget_directory(image, 1, A, working=[A])
    assert (result.records, result.response) == ((), [])


def test_a_directory_that_is_away_at_the_upgrade_need_not_name_a_life_that_wrote_none() -> None:
    image = registered(with_topic(cluster_of(1, 2), A, B), 1, keeps=False)
    image = registered(image, 2, dirs=[A])
    assert image.brokers[1].last_life_of(B) is None
    image = registered(registered(image, 3), 4, dirs=[A])
    assert image.brokers[1].last_life_of(B) == registration(3, keeps=True).incarnation_id
