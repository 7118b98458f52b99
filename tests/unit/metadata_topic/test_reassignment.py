"""What replicas a partition may get beside those of Kafka's transcript."""

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.free_descriptors import DescriptorBudget
from metadata_topic.controller.reassignment import Reassignment, alter_reassignments
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERING,
    PartitionImage,
    RemoteStore,
)
from metadata_topic.image.records import MetadataRecord, make
from tests.support.samples.metadata import apply, cluster_of, started

TOPIC = b"t" * 16
STORE = RemoteStore("rsm:Store", b"p" * 32)
DIRECTORIES = {one: bytes([100 + one]) * 16 for one in (1, 2, 3)}


def topic(
    name: str,
    *,
    isr: tuple[int, ...] = (1,),
    replicas: tuple[int, ...] = (1,),
    adding: tuple[int, ...] | None = None,
) -> list[MetadataRecord]:
    return [
        make("TopicRecord", name=name, topic_id=TOPIC),
        make(
            "PartitionRecord",
            2,
            partition_id=0,
            topic_id=TOPIC,
            replicas=list(replicas),
            adding_replicas=list(replicas[1:] if adding is None else adding),
            isr=list(isr),
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORIES[one] for one in replicas],
        ),
    ]


def asked(
    image: MetadataImage,
    name: str,
    replicas: tuple[int, ...] | None,
    rules: ElectionRules | None = None,
) -> tuple[str, PartitionImage]:
    """Why not, "" if it is done, and the partition then."""
    result = alter_reassignments(
        image, [Reassignment(name, 0, replicas)], defaults=rules or ElectionRules()
    )
    (error,) = result.response
    partition = apply(image, result.records).topics_by_name[name].partitions[0]
    return "" if error is None else f"{error.code.name}: {error}", partition


def test_added_replicas_have_no_directory_yet_and_the_others_keep_theirs() -> None:
    image = apply(cluster_of(1, 2, 3), topic("t"))
    why, partition = asked(image, "t", (2, 1))
    assert why == ""
    assert partition.replicas == (2, 1)
    assert partition.directories == (DIRECTORY_UNASSIGNED, DIRECTORIES[1])
    assert (partition.leader, partition.leader_epoch, partition.adding) == (1, 0, (2,))


def test_a_tiered_topic_gets_replicas_on_brokers_with_its_store() -> None:
    config = make(
        "ConfigRecord",
        resource_type=2,
        resource_name="t",
        name="remote.storage.enable",
        value="true",
    )
    image = started(started(cluster_of(2), 1, store=STORE), 3, store=STORE)
    image = apply(image, [*topic("t"), config])
    why, partition = asked(image, "t", (1, 3))
    assert (why, partition.replicas) == ("", (1, 3))
    why, partition = asked(image, "t", (1, 2))
    assert why.startswith(ErrorCode.INVALID_REPLICA_ASSIGNMENT.name)
    assert "broker 2, which does not have a remote tier with the store of this topic" in why
    assert partition.replicas == (1,)


def test_the_metadata_topic_gets_replicas_on_brokers_with_a_tier() -> None:
    image = started(started(cluster_of(2), 1, store=STORE), 3, store=STORE)
    image = apply(image, topic("__remote_log_metadata"))
    why, partition = asked(image, "__remote_log_metadata", (1, 3))
    assert (why, partition.replicas) == ("", (1, 3))
    why, partition = asked(image, "__remote_log_metadata", (1, 2))
    assert why.startswith(ErrorCode.INVALID_REPLICA_ASSIGNMENT.name)
    assert "broker 2, which does not have a remote tier" in why


def test_existing_replicas_can_be_reordered_on_brokers_with_any_tier() -> None:
    """Of brokers of Kafka none is known: ours leads the topic while their cluster is taken over."""
    image = started(cluster_of(2, 3), 1, store=STORE)
    name = "__remote_log_metadata"
    image = apply(image, topic(name, isr=(2, 3, 1), replicas=(2, 3, 1), adding=()))
    why, partition = asked(image, name, (1, 2, 3))
    assert (why, partition.replicas, partition.adding) == ("", (1, 2, 3), ())
    why, _ = asked(started(image, 4, store=None), name, (1, 2, 4))
    assert "broker 4, which does not have a remote tier" in why


def test_the_second_request_for_a_partition_meets_the_first_ones_change() -> None:
    image = apply(cluster_of(1, 2, 3), topic("t"))
    both = [Reassignment("t", 0, (1, 2)), Reassignment("t", 0, None), Reassignment("t", 0, None)]
    result = alter_reassignments(image, both)
    first, second, third = result.response
    assert (first, second) == (None, None)
    assert third is not None
    assert third.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    after = apply(image, result.records).topics_by_name["t"].partitions[0]
    assert (after.replicas, after.adding, after.leader_epoch) == ((1,), (), 1)


def test_a_cancellation_ends_the_addition_where_another_replica_lags() -> None:
    image = apply(cluster_of(1, 2, 3), topic("t", replicas=(1, 2, 3), adding=(3,)))
    why, partition = asked(image, "t", None)
    assert (why, partition.replicas, partition.adding) == ("", (1, 2), ())


def test_only_added_replicas_take_descriptors() -> None:
    image = apply(cluster_of(1, 2), topic("t"))
    budget = DescriptorBudget({1: 0, 2: 1})
    asked_for = [Reassignment("t", 0, (1, 2))] * 2
    result = alter_reassignments(image, asked_for, descriptors=budget)
    assert result.response == [None, None]
    assert budget.taken == {2: 1}


def test_a_cancellation_without_a_copy_in_sync_is_the_topics_choice() -> None:
    """DIFFERS: in Kafka the leader that is elected then does not say that it recovers."""
    image = apply(cluster_of(1, 2), topic("t", isr=(2,), replicas=(1, 2)))
    why, _ = asked(image, "t", None)
    assert why.endswith("because it would require an unclean leader election.")
    why, partition = asked(image, "t", None, ElectionRules(1, is_unclean=True))
    assert (why, partition.replicas, partition.isr) == ("", (1,), (1,))
    assert (partition.leader, partition.leader_recovery_state) == (1, RECOVERING)
    gone = apply(cluster_of(2), topic("t", isr=(2,), replicas=(1, 2)))
    _, partition = asked(gone, "t", None, ElectionRules(1, is_unclean=True))
    assert partition.leader == NO_LEADER
