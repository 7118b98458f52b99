"""What a leader may make of its ISR."""

from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.alter_partition import (
    ANY_EPOCH,
    AlteredPartition,
    ProposedIsr,
    alter_partition,
)
from metadata_topic.controller.brokers import begin_controlled_shutdown, fence_broker
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.errors import StaleBrokerEpochError
from metadata_topic.image.image import ELR_VERSION, METADATA_VERSION, MetadataImage
from metadata_topic.image.model import DIRECTORY_LOST, RECOVERED, RECOVERING, PartitionImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of, started

TOPIC = b"t" * 16
REPLICA = ReplicaId(TOPIC, 0)


def cluster(
    *isr: int, recovery: int = RECOVERED, features: dict[str, int] | None = None, lost: int = 0
) -> MetadataImage:
    """Brokers 1 to 4; a partition of 1, 2 and 3 under leader epoch 5 and partition epoch 9."""
    return apply(
        cluster_of(1, 2, 3, 4, features=features),
        [
            make("TopicRecord", name="t", topic_id=TOPIC),
            make(
                "PartitionRecord",
                2,
                partition_id=0,
                topic_id=TOPIC,
                replicas=[1, 2, 3],
                isr=list(isr),
                leader=isr[0],
                leader_epoch=5,
                partition_epoch=9,
                leader_recovery_state=recovery,
                directories=[
                    DIRECTORY_LOST if one == lost else bytes([100 + one]) * 16 for one in (1, 2, 3)
                ],
            ),
        ],
    )


def proposal(*isr: int, **changes: object) -> ProposedIsr:
    members = tuple((one, ANY_EPOCH) for one in isr)
    return replace(ProposedIsr(REPLICA, 5, 9, members), **changes)


def asked(
    image: MetadataImage,
    *proposals: ProposedIsr,
    broker_id: int = 1,
    defaults: ElectionRules | None = None,
) -> tuple[list[AlteredPartition], MetadataImage]:
    result = alter_partition(
        image,
        broker_id=broker_id,
        broker_epoch=image.brokers[broker_id].epoch,
        proposals=proposals,
        defaults=defaults or ElectionRules(),
    )
    return result.response, apply(image, result.records)


def partition(image: MetadataImage) -> PartitionImage:
    return image.topics_by_id[TOPIC].partitions[0]


@pytest.mark.parametrize("isr", [(1,), (1, 3), (3, 2, 1)])
def test_the_answer_is_the_partition_as_it_is_committed(isr: tuple[int, ...]) -> None:
    (answer,), image = asked(cluster(1, 2), proposal(*isr))
    now = partition(image)
    assert answer.partition == now
    assert (now.leader, now.isr, now.leader_epoch, now.partition_epoch) == (1, isr, 5, 10)


def test_the_isr_of_now_changes_nothing() -> None:
    (answer,), image = asked(cluster(1, 2), proposal(1, 2))
    assert answer.partition == partition(image)
    assert partition(image).partition_epoch == 9


def test_below_3_6_a_smaller_isr_raises_the_leader_epoch() -> None:
    old = {METADATA_VERSION: 11}
    for isr, epoch in (((1,), 6), ((1, 2, 3), 5)):
        (answer,), image = asked(cluster(1, 2, features=old), proposal(*isr))
        assert answer.partition is not None
        assert answer.partition.leader_epoch == partition(image).leader_epoch == epoch


REFUSED = {
    "unknown topic": (proposal(1, replica=ReplicaId(b"x" * 16, 0)), ErrorCode.UNKNOWN_TOPIC_ID),
    "unknown partition": (
        proposal(1, replica=ReplicaId(TOPIC, 1)),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "older leader epoch": (proposal(1, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
    "newer leader epoch": (proposal(1, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
    "older partition epoch": (proposal(1, partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
    "newer partition epoch": (proposal(1, partition_epoch=10), ErrorCode.NOT_CONTROLLER),
    "newer partition epoch under an older leader epoch": (
        proposal(1, leader_epoch=4, partition_epoch=10),
        ErrorCode.NOT_CONTROLLER,
    ),
    "a stranger": (proposal(1, 4), ErrorCode.INVALID_REQUEST),
    "a negative id": (proposal(1, -1), ErrorCode.INVALID_REQUEST),
    "a member twice": (proposal(1, 2, 2), ErrorCode.INVALID_REQUEST),
    "without the leader": (proposal(2, 3), ErrorCode.INVALID_REQUEST),
    "nobody": (proposal(), ErrorCode.INVALID_REQUEST),
    "an unknown recovery state": (proposal(1, recovery_state=2), ErrorCode.INVALID_REQUEST),
    "recovering again": (proposal(1, recovery_state=RECOVERING), ErrorCode.INVALID_REQUEST),
    "recovering with others": (
        proposal(1, 2, recovery_state=RECOVERING),
        ErrorCode.INVALID_REQUEST,
    ),
    "another life of a member": (proposal(members=((1, -1), (2, 7))), ErrorCode.INELIGIBLE_REPLICA),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_proposal_that_cannot_be_is_refused_with_kafkas_code(what: str) -> None:
    wanted, code = REFUSED[what]
    before = cluster(1, 2)
    (answer, other), image = asked(before, wanted, proposal(1))
    assert (answer.partition, answer.error and answer.error.code) == (None, code)
    assert other.error is None, "the others are taken all the same"
    assert partition(image).isr == (1,)


def test_who_does_not_lead_is_refused() -> None:
    (answer,), image = asked(cluster(1, 2), proposal(1, 2, 3), broker_id=2)
    assert answer.error is not None
    assert answer.error.code == ErrorCode.INVALID_REQUEST
    assert partition(image).partition_epoch == 9


@pytest.mark.parametrize("broker_id", [1, 9])
def test_another_life_of_the_sender_is_refused_whole(broker_id: int) -> None:
    with pytest.raises(StaleBrokerEpochError):
        alter_partition(cluster(1), broker_id=broker_id, broker_epoch=999, proposals=[proposal(1)])


def test_members_are_taken_with_the_epoch_of_their_present_life() -> None:
    image = cluster(1)
    members = tuple((one, image.brokers[one].epoch) for one in (1, 2))
    (answer,), _ = asked(image, proposal(members=members))
    assert answer.error is None
    (answer,), _ = asked(started(image, 2, life=2), proposal(members=members))
    assert answer.error is not None
    assert answer.error.code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize("what", ["fenced", "stopping", "gone", "its directory lost"])
def test_a_member_that_cannot_lead_is_ineligible(what: str) -> None:
    image = cluster(1, lost=2 if what == "its directory lost" else 0)
    names = {"broker_id": 2, "broker_epoch": image.brokers[2].epoch}
    if what == "fenced":
        image = apply(image, fence_broker(image, **names).records)
    elif what == "stopping":
        image = apply(image, begin_controlled_shutdown(image, **names).records)
    elif what == "gone":
        image = apply(image, [make("UnregisterBrokerRecord", **names)])
    (answer,), after = asked(image, proposal(1, 2))
    assert answer.error is not None
    assert answer.error.code == ErrorCode.INELIGIBLE_REPLICA
    assert partition(after).isr == (1,)


def test_the_second_proposal_for_a_partition_meets_the_change_of_the_first() -> None:
    (first, second, third), image = asked(
        cluster(1, 2), proposal(1), proposal(1, 3), proposal(1, 3, partition_epoch=10)
    )
    assert first.error is None
    assert second.error is not None
    assert second.error.code == ErrorCode.INVALID_UPDATE_VERSION
    assert third.partition == partition(image)
    assert (partition(image).isr, partition(image).partition_epoch) == ((1, 3), 11)


# -- recovery from an unclean election


@pytest.mark.parametrize(
    ("isr", "state", "is_taken"),
    [
        ((1,), RECOVERING, True),
        ((1, 2), RECOVERING, False),
        ((1,), RECOVERED, True),
        ((1, 2), RECOVERED, True),
    ],
)
def test_a_recovering_leader_is_alone_until_it_says_that_it_has_recovered(
    isr: tuple[int, ...], state: int, is_taken: bool
) -> None:
    before = cluster(1, recovery=RECOVERING)
    assert partition(before).unclean_epoch == 5
    (answer,), image = asked(before, proposal(*isr, recovery_state=state))
    assert (answer.error is None) == is_taken
    now = partition(image)
    assert now.leader_recovery_state == (state if is_taken else RECOVERING)
    assert now.isr == (isr if is_taken else (1,))


# -- eligible leader replicas


@pytest.mark.parametrize(("min_isr", "elr"), [(1, ()), (2, (2,)), (3, (2, 3)), (9, (2, 3))])
def test_who_leaves_below_min_insync_replicas_is_eligible(
    min_isr: int, elr: tuple[int, ...]
) -> None:
    defaults = ElectionRules(min_isr=min_isr)
    image = cluster(1, 2, 3, features={ELR_VERSION: 1})
    _, image = asked(image, proposal(1, 2), defaults=defaults)
    assert partition(image).elr == ((3,) if min_isr > 2 else ())
    _, image = asked(image, proposal(1, partition_epoch=10), defaults=defaults)
    assert partition(image).elr == elr


def test_who_is_in_sync_again_is_eligible_no_more() -> None:
    defaults = ElectionRules(min_isr=2)
    image = cluster(1, 2, 3, features={ELR_VERSION: 1})
    _, image = asked(image, proposal(1), defaults=defaults)
    assert partition(image).elr == (2, 3)
    (answer,), image = asked(image, proposal(1, 3, partition_epoch=10), defaults=defaults)
    assert answer.partition == partition(image)
    assert (partition(image).isr, partition(image).elr) == ((1, 3), ())


def test_a_topics_own_minimum_counts_before_the_clusters() -> None:
    image = cluster(1, 2, 3, features={ELR_VERSION: 1})
    for kind, name, value, elr in ((4, "", "2", (2, 3)), (2, "t", "1", ())):
        config = make(
            "ConfigRecord",
            resource_type=kind,
            resource_name=name,
            name="min.insync.replicas",
            value=value,
        )
        image = apply(image, [config])
        _, after = asked(image, proposal(1), defaults=ElectionRules(min_isr=1))
        assert partition(after).elr == elr
