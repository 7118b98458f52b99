from dataclasses import replace

import pytest

from kafka_protocol.errors import KafkaError
from metadata_topic.controller.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
    register_controller,
    unfence_broker,
)
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.errors import (
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
    UnsupportedFeatureError,
)
from metadata_topic.controller.features import finalized_features, unserved_features
from metadata_topic.controller.producer_ids import (
    ProducerIdsExhaustedError,
    allocate_producer_ids,
)
from metadata_topic.controller.reassignment import Reassignment, alter_reassignments
from metadata_topic.image.image import ELR_VERSION, METADATA_VERSION, MetadataImage
from metadata_topic.image.model import RECOVERED, RECOVERING
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of, registration_of, started

TOPIC_ID = b"t" * 16


def with_partition(image: MetadataImage, replicas: list[int], isr: list[int]) -> MetadataImage:
    return apply(
        image,
        [
            make("TopicRecord", name="t", topic_id=TOPIC_ID),
            make(
                "PartitionRecord",
                2,
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes([100 + one]) * 16 for one in replicas],
            ),
        ],
    )


def facts(image: MetadataImage) -> tuple[int, int, tuple[int, ...]]:
    partition = image.partition("t", 0)
    assert partition is not None
    return partition.leader, partition.leader_epoch, partition.isr


def test_a_registered_broker_is_fenced_and_its_epoch_is_an_offset() -> None:
    image = cluster_of()
    result = register_broker(image, registration_of(1))
    assert result.response == image.provenance.end_offset
    broker = apply(image, result.records).brokers[1]
    assert broker.fenced
    assert broker.epoch == result.response
    assert not broker.is_active


def test_each_restart_raises_leader_epochs_by_two() -> None:
    image = with_partition(cluster_of(1), [1], [1])
    for life in range(2, 5):
        image = started(image, 1, life=life)
        assert facts(image) == (1, 2 * (life - 1), (1,))


def test_a_restart_after_a_clean_stop_raises_them_by_two_as_well() -> None:
    image = with_partition(cluster_of(1), [1], [1])
    epoch = image.brokers[1].epoch
    leaving = begin_controlled_shutdown(image, broker_id=1, broker_epoch=epoch)
    image = apply(image, leaving.records)
    assert facts(image) == (-1, 1, (1,))
    assert facts(started(image, 1, life=2)) == (1, 2, (1,))


def test_leadership_moves_to_another_member_in_sync() -> None:
    image = with_partition(cluster_of(1, 2, 3), [1, 2, 3], [1, 3])
    result = fence_broker(image, broker_id=1, broker_epoch=image.brokers[1].epoch)
    image = apply(image, result.records)
    assert facts(image) == (3, 1, (3,))
    assert image.brokers[1].fenced


def test_the_last_member_in_sync_stays_and_leads_again_when_it_is_back() -> None:
    image = with_partition(cluster_of(1, 2), [1, 2], [1])
    image = apply(
        image,
        fence_broker(image, broker_id=1, broker_epoch=image.brokers[1].epoch).records,
    )
    assert facts(image) == (-1, 1, (1,))
    image = started(image, 2, life=2)
    assert facts(image)[0] == -1, "a replica that is not in sync must not lead"
    assert facts(started(image, 1, life=2)) == (1, 2, (1,))


def test_a_partition_of_a_cluster_with_eligible_replicas_is_led_again() -> None:
    image = with_partition(cluster_of(1), [1], [1])
    image = apply(
        image,
        [
            make(
                "PartitionChangeRecord",
                2,
                partition_id=0,
                topic_id=TOPIC_ID,
                isr=[],
                leader=-1,
                eligible_leader_replicas=[1],
                last_known_elr=[1],
            )
        ],
    )
    image = started(image, 1, life=2)
    assert facts(image) == (1, 2, (1,))
    partition = image.partition("t", 0)
    assert partition is not None
    assert (partition.elr, partition.last_known_elr) == ((), ())


# -- eligible leader replicas


def state(image: MetadataImage) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    """Leader, ISR, ELR and recovery state."""
    partition = image.partition("t", 0)
    assert partition is not None
    return partition.leader, partition.isr, partition.elr, partition.leader_recovery_state


def killed(image: MetadataImage, broker_id: int) -> MetadataImage:
    epoch = image.brokers[broker_id].epoch
    result = fence_broker(image, broker_id=broker_id, broker_epoch=epoch, defaults=TWO)
    return apply(image, result.records)


def back(image: MetadataImage, broker_id: int, *, is_clean: bool) -> MetadataImage:
    """The image after a broker registered again and was unfenced."""
    before = image.brokers[broker_id]
    life = replace(
        registration_of(broker_id, life=before.incarnation_id[0] + 1),
        previous_epoch=before.epoch if is_clean else before.epoch - 1,
    )
    registered = register_broker(image, life, defaults=TWO)
    image = apply(image, registered.records)
    names = {"broker_id": broker_id, "broker_epoch": registered.response}
    return apply(image, unfence_broker(image, **names, defaults=TWO).records)


TWO = ElectionRules(min_isr=2)
ELR = {ELR_VERSION: 1}


def test_the_eligible_replica_that_is_back_first_leads() -> None:
    image = with_partition(cluster_of(1, 2, 3, features=ELR), [1, 2, 3], [1, 2, 3])
    image = killed(killed(image, 3), 2)
    assert state(image) == (1, (1,), (2,), RECOVERED)  # 3 left while there were two
    image = killed(image, 1)
    assert state(image) == (-1, (), (1, 2), RECOVERED)
    assert state(back(image, 3, is_clean=True))[0] == -1
    assert state(back(image, 2, is_clean=True)) == (2, (2,), (1,), RECOVERED)


def test_who_ended_uncleanly_is_eligible_no_more() -> None:
    image = with_partition(cluster_of(1, 2, features=ELR), [1, 2], [1, 2])
    image = killed(killed(image, 1), 2)
    assert state(image) == (-1, (), (1, 2), RECOVERED)
    image = back(image, 1, is_clean=False)
    assert state(image) == (-1, (), (2,), RECOVERED)
    assert state(back(image, 2, is_clean=True)) == (2, (2,), (), RECOVERED)


def test_where_all_ended_uncleanly_the_last_known_leader_recovers() -> None:
    image = with_partition(cluster_of(1, 2, features=ELR), [1, 2], [1, 2])
    image = killed(killed(image, 1), 2)
    image = back(image, 1, is_clean=False)
    assert state(image)[0] == -1
    assert state(back(image, 2, is_clean=False)) == (2, (2,), (), RECOVERING)


def test_a_member_that_ended_uncleanly_leaves_before_it_is_fenced() -> None:
    """Its next life comes before its session is over."""
    image = with_partition(cluster_of(1, 2, 3, features=ELR), [1, 2, 3], [1, 2])
    for is_clean, elr in ((True, (1,)), (False, ())):
        assert state(back(image, 1, is_clean=is_clean)) == (2, (2,), elr, RECOVERED)


def test_the_only_replica_of_a_partition_stays_eligible() -> None:
    image = with_partition(cluster_of(1, features=ELR), [1], [1])
    for _ in range(3):
        image = back(image, 1, is_clean=False)
        assert state(image) == (1, (1,), (), RECOVERED)


def test_the_only_replica_stays_eligible_while_another_is_being_added() -> None:
    """Else a kill while a partition moves becomes an unclean election, without another copy."""
    image = with_partition(cluster_of(1, 2, features=ELR), [1], [1])
    asked = [Reassignment("t", 0, (2,))]
    image = apply(image, alter_reassignments(image, asked, defaults=TWO).records)
    assert state(back(image, 1, is_clean=False)) == (1, (1,), (), RECOVERED)


def test_without_the_feature_an_unclean_end_costs_nothing() -> None:
    image = with_partition(cluster_of(1, 2), [1, 2], [1])
    assert state(back(image, 1, is_clean=False)) == (1, (1,), (), RECOVERED)


def test_a_broker_that_was_never_registered_ended_uncleanly() -> None:
    image = with_partition(cluster_of(1, 2, features=ELR), [1, 2], [1, 2])
    image = killed(image, 2)
    gone = make("UnregisterBrokerRecord", broker_id=2, broker_epoch=image.brokers[2].epoch)
    image = apply(image, [gone])
    assert state(image)[2] == (2,)
    registered = register_broker(image, registration_of(2), defaults=TWO)
    assert state(apply(image, registered.records)) == (1, (1,), (), RECOVERED)


def test_registering_twice_in_one_life_keeps_the_epoch() -> None:
    image = cluster_of(1)
    assert register_broker(image, registration_of(1)).response == image.brokers[1].epoch


def test_a_second_process_with_the_same_id_is_refused_during_the_session() -> None:
    with pytest.raises(DuplicateBrokerRegistrationError):
        register_broker(cluster_of(1), registration_of(1, life=2), has_live_session=True)


def test_unfencing_and_fencing_twice_writes_nothing() -> None:
    image = cluster_of(1)
    epoch = image.brokers[1].epoch
    assert unfence_broker(image, broker_id=1, broker_epoch=epoch).records == ()
    image = apply(image, fence_broker(image, broker_id=1, broker_epoch=epoch).records)
    assert fence_broker(image, broker_id=1, broker_epoch=epoch).records == ()


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "error"),
    [(2, 0, StaleBrokerEpochError), (1, 99, StaleBrokerEpochError)],
)
def test_only_the_current_life_is_heard(
    broker_id: int, broker_epoch: int, error: type[KafkaError]
) -> None:
    image = cluster_of(1)
    for decide in (unfence_broker, fence_broker, begin_controlled_shutdown, allocate_producer_ids):
        with pytest.raises(error):
            decide(image, broker_id=broker_id, broker_epoch=broker_epoch)


def test_a_controller_registers_once_in_a_life() -> None:
    image = cluster_of()
    image = apply(image, register_controller(image, registration_of(1)).records)
    assert image.controllers[1].endpoints[0].port == 9093
    assert register_controller(image, registration_of(1)).records == ()
    assert len(register_controller(image, registration_of(1, life=2)).records) == 1


def test_a_controller_that_cannot_stand_in_the_metadata_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="too old"):
        register_controller(cluster_of(features={METADATA_VERSION: 14}), registration_of(1))
    with pytest.raises(InvalidRequestError, match="-1 is negative"):
        register_controller(cluster_of(), registration_of(-1))


def test_producer_id_blocks_follow_each_other() -> None:
    image = cluster_of(1)
    epoch = image.brokers[1].epoch
    for first in (0, 1000, 2000):
        result = allocate_producer_ids(image, broker_id=1, broker_epoch=epoch)
        assert (result.response.first_id, result.response.end_id) == (first, first + 1000)
        image = apply(image, result.records)


@pytest.mark.parametrize(
    ("used", "first_id"),
    [(-1, 5_000), (4_999, 5_000), (5_000, 6_000), (7_123, 8_123), (2**62 + 1, 5_000)],
)
def test_producer_ids_that_logs_know_are_not_given_again(used: int, first_id: int) -> None:
    image = apply(cluster_of(1), [make("ProducerIdsRecord", next_producer_id=5_000)])
    epoch = image.brokers[1].epoch
    result = allocate_producer_ids(image, broker_id=1, broker_epoch=epoch, used=used)
    assert result.response.first_id == first_id
    assert apply(image, result.records).next_producer_id == result.response.end_id


def test_the_rest_of_a_block_that_logs_know_one_id_of_is_not_given_again() -> None:
    """Older metadata: clients hold ids of the block 5000 to 5999 that no log knows yet."""
    image = apply(cluster_of(1), [make("ProducerIdsRecord", next_producer_id=5_000)])
    epoch = image.brokers[1].epoch
    for used in (5_000, 5_006, 5_999):
        result = allocate_producer_ids(image, broker_id=1, broker_epoch=epoch, used=used)
        assert result.response.first_id >= 6_000


def test_producer_ids_end_some_day() -> None:
    image = apply(
        cluster_of(1), [make("ProducerIdsRecord", broker_id=1, next_producer_id=2**63 - 500)]
    )
    with pytest.raises(ProducerIdsExhaustedError):
        allocate_producer_ids(image, broker_id=1, broker_epoch=image.brokers[1].epoch)


def test_features_that_are_not_served_are_kept_but_not_reported() -> None:
    image = cluster_of(1, features={"transaction.version": 2})
    assert unserved_features(image) == {"transaction.version": 2}
    assert finalized_features(image, 1) == {"metadata.version": 30, "kraft.version": 1}
    assert finalized_features(image, 0) == {"metadata.version": 30}
