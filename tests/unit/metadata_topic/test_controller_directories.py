"""The metadata hold the directory of every replica, and from when on that can be relied on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from metadata_topic.controller.brokers import (
    Registration,
    fence_broker,
    register_broker,
    unfence_broker,
)
from metadata_topic.controller.directories import (
    Forgotten,
    FoundReplicas,
    ReplicaId,
    assign_directories,
    can_assign,
    forget_directory,
    known_directories,
    moved_at_registration,
)
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.errors import StaleBrokerEpochError
from metadata_topic.image.image import (
    ELR_VERSION,
    EMPTY_IMAGE,
    METADATA_VERSION,
    MetadataImage,
)
from metadata_topic.image.model import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    RECOVERED,
    RECOVERING,
)
from metadata_topic.image.records import MetadataRecord, decode_record, encode_record, make
from metadata_topic.image.snapshot_records import snapshot_records
from tests.support.samples.metadata import apply, cluster_of, registration_of

TOPIC = b"t" * 16
A, B = b"a" * 16, b"b" * 16
OTHER = bytes([102]) * 16  # of broker 2
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
    """Partition 0, 1, ... of broker 1 in these directories; broker 2 has each, too, in `OTHER`."""
    told = {} if version == 0 else {"directories": []}
    records = [make("TopicRecord", name="t", topic_id=TOPIC)]
    for index, directory in enumerate(directories):
        if version:
            told["directories"] = [OTHER, directory]
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


def noting(image: MetadataImage, found: FoundReplicas) -> MetadataImage:
    """The image after broker 1 registered again and said what it found."""
    broker = image.brokers.get(1)
    keeps = broker is None or broker.directories_assigned_from >= 0
    again = registration(9, keeps=keeps)
    return apply(image, register_broker(image, again, found=found).records)


def at_registration(
    image: MetadataImage, found: Mapping[ReplicaId, bytes], *, is_missing_some: bool
) -> list[bytes]:
    after = noting(image, FoundReplicas(found, NONE, is_missing_some=is_missing_some))
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
def test_only_a_replica_of_before_the_rule_can_lie_in_a_missing_directory(
    directory: bytes, keeps: bool, is_missing_some: bool, is_lost: bool
) -> None:
    image = with_topic(registered(cluster_of(2), 1, keeps=keeps), directory)
    after = at_registration(image, NONE, is_missing_some=is_missing_some)
    assert after == [DIRECTORY_LOST if is_lost else directory]


@pytest.mark.parametrize(
    ("keeps", "has_changed", "is_lost"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_kafka_replica_that_is_missing_begins_only_if_it_never_changed(
    keeps: bool, has_changed: bool, is_lost: bool
) -> None:
    """Kafka serves a replica before its directory is noted; its next life says what it found."""
    image = with_topic(registered(cluster_of(2), 1, keeps=False), DIRECTORY_UNASSIGNED)
    if has_changed:
        change = make("PartitionChangeRecord", 2, partition_id=0, topic_id=TOPIC, isr=[1, 2])
        image = apply(image, [change])
    after = registered(image, 2, keeps=keeps)
    assert directories_of(after) == [DIRECTORY_LOST if is_lost else DIRECTORY_UNASSIGNED]
    assert after.topics_by_id[TOPIC].partitions[0].isr == (2,)


@pytest.mark.parametrize("is_missing_some", [True, False])
def test_a_replica_refused_at_one_registration_is_not_new_at_the_next(
    is_missing_some: bool,
) -> None:
    image = with_topic(cluster_of(2), DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, A)
    refused = {replica(0): A, replica(1): DIRECTORY_LOST, replica(2): B}
    for before, expected in (
        (image, [A, DIRECTORY_LOST, A]),
        (registered(image, 1), [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, A]),
    ):
        found = FoundReplicas(NONE, refused, is_missing_some=is_missing_some)
        assert directories_of(noting(before, found)) == expected


def test_a_broker_that_was_never_registered_settles_its_replicas_as_well() -> None:
    image = with_topic(cluster_of(2), DIRECTORY_UNASSIGNED)
    assert at_registration(image, NONE, is_missing_some=True) == [DIRECTORY_LOST]


def test_an_ordinary_start_moves_nothing() -> None:
    image = with_topic(registered(cluster_of(2), 1), A, B)
    found = FoundReplicas({replica(0): A, replica(1): B}, NONE, is_missing_some=False)
    assert moved_at_registration(image, 1, found, keeps_order=True) == {}


def test_replicas_of_others_and_topics_that_are_gone_are_passed_over() -> None:
    image = with_topic(registered(cluster_of(2), 1), A)
    there = FoundReplicas({ReplicaId(b"x" * 16, 0): B, replica(7): B}, NONE, is_missing_some=True)
    nothing = FoundReplicas(NONE, NONE, is_missing_some=True)
    assert moved_at_registration(image, 1, there, keeps_order=True) == {}
    assert moved_at_registration(image, 3, nothing, keeps_order=True) == {}


# -- metadata.version without directories


def test_an_old_metadata_version_has_no_directories_and_keeps_no_rule() -> None:
    image = with_topic(cluster_of(2, features={METADATA_VERSION: OLD_VERSION}), A, version=0)
    assert not can_assign(image)
    image = registered(image, 1)
    assert image.brokers[1].directories_assigned_from == -1
    assert directories_of(image) == [DIRECTORY_MIGRATING]
    found = FoundReplicas({replica(0): A}, NONE, is_missing_some=True)
    assert moved_at_registration(image, 1, found, keeps_order=True) == {}


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
    assert directories_of(after, 2) == [OTHER] * 3
    before = image.topics_by_id[TOPIC].partitions[0]
    now = after.topics_by_id[TOPIC].partitions[0]
    assert (now.leader, now.leader_epoch, now.isr) == (2, 0, before.isr)


def test_only_the_present_life_assigns() -> None:
    image = with_topic(registered(registered(cluster_of(2), 1), 2), DIRECTORY_UNASSIGNED)
    old = image.brokers[1].epoch - 1
    with pytest.raises(StaleBrokerEpochError):
        assign_directories(image, broker_id=1, broker_epoch=old, assignments={replica(0): A})
    with pytest.raises(StaleBrokerEpochError, match="is not registered"):
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


def test_a_forgotten_directory_is_unknown_and_its_replicas_begin_empty() -> None:
    image = with_topic(registered(cluster_of(2), 1), A, B, B, DIRECTORY_UNASSIGNED)
    result = forget_directory(image, 1, B, working=[A])
    assert result.response == ([("t", 1), ("t", 2)], [])
    after = apply(image, result.records)
    assert directories_of(after) == [A, *[DIRECTORY_UNASSIGNED] * 3]
    assert directories_of(after, 2) == [OTHER] * 4  # the other broker's are its own
    assert known_directories(after, 1) == {A}
    assert forget_directory(after, 1, B, working=[A]).records == ()


def test_the_last_directory_can_be_forgotten() -> None:
    image = with_topic(registered(cluster_of(2), 1, dirs=[B]), B)
    after = apply(image, forget_directory(image, 1, B, working=[]).records)
    assert known_directories(after, 1) == set()


def test_replicas_whose_directory_was_never_known_are_forgotten_as_lost() -> None:
    image = with_topic(registered(cluster_of(2), 1), DIRECTORY_LOST, A)
    result = forget_directory(image, 1, DIRECTORY_LOST, working=[A, B])
    assert result.response == ([("t", 0)], [])
    assert directories_of(apply(image, result.records)) == [DIRECTORY_UNASSIGNED, A]


def test_a_directory_that_is_there_is_not_forgotten() -> None:
    image = with_topic(registered(cluster_of(2), 1), A)
    result = forget_directory(image, 1, A, working=[A])
    assert (result.records, result.response) == ((), ([], []))


def test_a_directory_absent_at_the_upgrade_need_not_name_an_incarnation() -> None:
    image = registered(with_topic(cluster_of(1, 2), A, B), 1, keeps=False)
    image = registered(image, 2, dirs=[A])
    assert image.brokers[1].last_incarnation_of(B) is None
    image = registered(registered(image, 3), 4, dirs=[A])
    assert image.brokers[1].last_incarnation_of(B) == registration(3, keeps=True).incarnation_id


# -- what is not there leaves the ISR


def of_two(*isr: int, replicas: Sequence[int] = (2, 1), has_elr: bool = False) -> MetadataImage:
    """Brokers 1 (directories A and B) and 2, and a partition of both; broker 1's is in B."""
    features = {ELR_VERSION: 1} if has_elr else {}
    image = cluster_of(2, features=features)
    image = registered(image, 1)
    epoch = image.brokers[1].epoch
    image = apply(image, unfence_broker(image, broker_id=1, broker_epoch=epoch).records)
    return apply(
        image,
        [
            make("TopicRecord", name="t", topic_id=TOPIC),
            make(
                "PartitionRecord",
                2,
                partition_id=0,
                topic_id=TOPIC,
                replicas=list(replicas),
                isr=list(isr),
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[B if one == 1 else OTHER for one in replicas],
            ),
        ],
    )


def members(image: MetadataImage) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR and ELR."""
    partition = image.topics_by_id[TOPIC].partitions[0]
    return partition.leader, partition.isr, partition.elr


def unfenced(image: MetadataImage, broker_id: int = 1) -> MetadataImage:
    epoch = image.brokers[broker_id].epoch
    return apply(image, unfence_broker(image, broker_id=broker_id, broker_epoch=epoch).records)


def forgotten(image: MetadataImage, **how: bool) -> tuple[MetadataImage, Forgotten]:
    result = forget_directory(image, 1, B, working=[A], **how)
    return apply(image, result.records), result.response


@pytest.mark.parametrize("has_elr", [False, True])
def test_a_replica_in_an_unregistered_directory_leaves_before_it_may_lead(
    has_elr: bool,
) -> None:
    image = of_two(1, 2, has_elr=has_elr)
    image = registered(image, 2, dirs=[A])
    assert members(image) == (2, (2,), ())
    assert members(unfenced(image)) == (2, (2,), ())


@pytest.mark.parametrize("has_elr", [False, True])
def test_the_last_copy_keeps_its_place_and_leads_once_its_disk_is_back(has_elr: bool) -> None:
    there = of_two(1, has_elr=has_elr, replicas=[1])
    image = unfenced(registered(there, 2, dirs=[A]))
    assert members(image) == ((-1, (), (1,)) if has_elr else (-1, (1,), ()))
    assert members(unfenced(registered(image, 3))) == (1, (1,), ())


@pytest.mark.parametrize("has_elr", [False, True])
def test_the_last_of_several_waits_for_its_directory_as_well(has_elr: bool) -> None:
    image = unfenced(registered(of_two(1, has_elr=has_elr), 2, dirs=[A]))
    assert members(image)[0] == -1
    image = unfenced(registered(image, 3))
    assert members(image) == (1, (1,), ())
    # With eligible replicas: it may have lost what it had not flushed, so the election is unclean.
    state = image.topics_by_id[TOPIC].partitions[0].leader_recovery_state
    assert state == (RECOVERING if has_elr else RECOVERED)


def test_a_refused_replica_leaves_the_isr_at_the_registration() -> None:
    image = of_two(1, 2)
    found = FoundReplicas(NONE, {replica(0): B}, is_missing_some=False)
    image = apply(image, register_broker(image, registration(2, keeps=True), found=found).records)
    assert members(unfenced(image)) == (2, (2,), ())


def test_a_replica_that_is_found_in_another_directory_is_not_lost() -> None:
    image = of_two(1, replicas=[1])
    found = FoundReplicas({replica(0): A}, NONE, is_missing_some=True)
    again = registration(2, keeps=True, dirs=[A])
    image = apply(image, register_broker(image, again, found=found).records)
    assert members(unfenced(image)) == (1, (1,), ())


def test_a_second_registration_of_one_life_loses_what_it_no_longer_names() -> None:
    image = of_two(1, 2)
    image = registered(image, 1, dirs=[A])
    assert not image.brokers[1].fenced
    assert members(image) == (2, (2,), ())


# -- what is forgotten leads nobody


@pytest.mark.parametrize("has_elr", [False, True])
def test_a_forgotten_replica_is_in_no_isr_and_follows_from_nothing(has_elr: bool) -> None:
    image, lost = forgotten(of_two(1, 2, has_elr=has_elr))
    assert lost == ([("t", 0)], [])
    assert members(image) == (2, (2,), ())
    assert directories_of(image) == [DIRECTORY_UNASSIGNED]
    image = unfenced(registered(image, 2, dirs=[A]))
    assert members(image) == (2, (2,), ())


@pytest.mark.parametrize("has_elr", [False, True])
@pytest.mark.parametrize("replicas", [(1,), (2, 1)])
def test_forgetting_the_last_copy_begins_nothing(replicas: tuple[int, ...], has_elr: bool) -> None:
    image, lost = forgotten(of_two(1, replicas=replicas, has_elr=has_elr))
    assert lost == ([("t", 0)], [("t", 0)])
    assert members(image) == (-1, (), ())
    assert directories_of(image) == [DIRECTORY_LOST]
    for life in (2, 3):
        image = unfenced(registered(image, life, dirs=[A]))
    image = apply(
        image, fence_broker(image, broker_id=2, broker_epoch=image.brokers[2].epoch).records
    )
    assert members(unfenced(image, 2)) == (-1, (), ())
    assert forgotten_lost(image, begins_last_copies=False) == (-1, (), ())
    assert forgotten_lost(image, begins_last_copies=True) == (1, (1,), ())


def forgotten_lost(
    image: MetadataImage, *, begins_last_copies: bool
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    result = forget_directory(
        image, 1, DIRECTORY_LOST, working=[A], begins_last_copies=begins_last_copies
    )
    return members(unfenced(registered(apply(image, result.records), 7, dirs=[A])))


def test_what_is_given_up_with_its_directory_begins_anew() -> None:
    image, lost = forgotten(of_two(1, replicas=[1]), begins_last_copies=True)
    assert lost == ([("t", 0)], [])
    assert members(image) == (-1, (1,), ())
    assert directories_of(image) == [DIRECTORY_UNASSIGNED]
    assert members(unfenced(registered(image, 2, dirs=[A]))) == (1, (1,), ())


def without_elr_of_2(image: MetadataImage) -> MetadataImage:
    """The image after broker 2 registered again, having ended uncleanly, and was unfenced."""
    again = registration_of(2, life=2)
    image = apply(image, register_broker(image, again, defaults=ElectionRules(2)).records)
    return unfenced(image, 2)


def test_what_is_begun_anew_is_no_last_known_leader() -> None:
    """Broker 1 led last, and broker 2 has all that is committed, if only it ended well."""
    image = of_two(1, replicas=(2, 1), has_elr=True)
    records = [
        make(
            "PartitionChangeRecord",
            2,
            partition_id=0,
            topic_id=TOPIC,
            isr=[],
            leader=-1,
            eligible_leader_replicas=[1, 2],
            last_known_elr=[1],
        ),
        make(
            "BrokerRegistrationChangeRecord",
            broker_id=1,
            broker_epoch=image.brokers[1].epoch,
            fenced=1,
        ),
        make(
            "BrokerRegistrationChangeRecord",
            broker_id=2,
            broker_epoch=image.brokers[2].epoch,
            fenced=1,
        ),
    ]
    image = apply(image, records)
    image, lost = forgotten(image)
    assert lost == ([("t", 0)], [])
    assert members(image) == (-1, (), (2,))
    image = without_elr_of_2(image)
    assert members(image) == (-1, (), ())
    image = unfenced(registered(image, 2, dirs=[A]))
    assert members(image) == (-1, (), ()), "it is empty"


def test_a_last_copy_that_is_given_up_leads_also_after_an_unclean_end() -> None:
    for replicas in ((1,), (2, 1)):
        image, _ = forgotten(of_two(1, replicas=replicas, has_elr=True), begins_last_copies=True)
        assert members(unfenced(registered(image, 2, dirs=[A]))) == (1, (1,), ())


def test_another_replica_begins_by_an_unclean_election_alone() -> None:
    image, _ = forgotten(of_two(1))
    assert members(image) == (-1, (), ())
    allowed = forget_directory(
        of_two(1), 1, B, working=[A], defaults=ElectionRules(is_unclean=True)
    )
    image = apply(of_two(1), allowed.records)
    assert allowed.response == ([("t", 0)], [])
    assert members(image) == (2, (2,), ())
    assert image.topics_by_id[TOPIC].partitions[0].leader_recovery_state == RECOVERING


def test_a_forgotten_last_known_replica_that_is_found_may_lead_again() -> None:
    image, _ = forgotten(of_two(1, replicas=[1], has_elr=True))
    found = FoundReplicas({replica(0): B}, NONE, is_missing_some=False)
    image = apply(image, register_broker(image, registration(2, keeps=True), found=found).records)
    assert members(unfenced(image)) == (1, (1,), ())


@pytest.mark.parametrize("has_elr", [False, True])
def test_kafkas_replica_that_was_begun_on_another_disk_leaves_the_isr(has_elr: bool) -> None:
    image = of_two(1, 2, has_elr=has_elr)
    image = unfenced(registered(image, 2, keeps=False, dirs=[A]))
    image = replace(
        image, brokers={**image.brokers, 1: replace(image.brokers[1], directories_assigned_from=-1)}
    )
    # It was the last member, and led last.
    last = make("PartitionChangeRecord", 2, partition_id=0, topic_id=TOPIC, isr=[1], leader=-1)
    last.value.last_known_elr = [1] if has_elr else None
    image = apply(image, [last])
    epoch = image.brokers[1].epoch
    result = assign_directories(image, broker_id=1, broker_epoch=epoch, assignments={replica(0): A})
    assert members(apply(image, result.records)) == (-1, (), ())


def test_a_replica_that_is_assigned_to_a_lost_directory_leaves_the_isr() -> None:
    image = of_two(1, 2)
    epoch = image.brokers[1].epoch
    result = assign_directories(
        image, broker_id=1, broker_epoch=epoch, assignments={replica(0): DIRECTORY_LOST}
    )
    assert members(apply(image, result.records)) == (2, (2,), ())
