"""Replicas of a new topic's partitions: chosen here, or given in the request and checked."""

from collections.abc import Mapping

from metadata_topic.controller.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
)
from metadata_topic.controller.placement import place
from metadata_topic.controller.tiered_placement import candidates_for
from metadata_topic.controller.topic_specs import DEFAULT, NewTopic, TopicDefaults
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage
from runtime.work import Pace, Steps


def replicas_of(
    image: MetadataImage,
    topic: NewTopic,
    configs: Mapping[str, str],
    defaults: TopicDefaults,
    start: int,
) -> Steps[list[tuple[int, ...]]]:
    """Decide the replicas of every partition of a new topic, in steps.

    Args:
        image: Its brokers are the candidates.
        topic: With assignments, or with a number of partitions and a replication factor.
        configs: Its overrides; a tiered topic is limited to some brokers, see `tiered_placement`.
        defaults: Values for -1.
        start: Any number, shifts the first leader, see `placement.place`.

    Returns:
        Broker ids of each partition, the preferred leader first.

    Raises:
        InvalidPartitionsError: Zero or negative partitions.
        InvalidReplicationFactorError: Zero, negative or more than there are brokers.
        InvalidReplicaAssignmentError: An invalid manual assignment.
        InvalidRequestError: A manual assignment together with numbers.
    """
    if topic.assignments:
        return (yield from _manual_replicas(image, topic, configs))
    factor = topic.replication_factor
    if factor < DEFAULT or factor == 0:
        raise InvalidReplicationFactorError(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    partitions = topic.num_partitions
    if partitions < DEFAULT or partitions == 0:
        raise InvalidPartitionsError(
            "Number of partitions was set to an invalid non-positive value."
        )
    if partitions == DEFAULT:
        partitions = defaults.num_partitions
    found = candidates_for(image, topic.name, configs, ())
    brokers = list(found.brokers.values())
    if factor == DEFAULT:
        factor = defaults.replication_factor
        if factor > len(brokers):
            raise InvalidReplicationFactorError(
                f"default.replication.factor={factor} cannot be met: only {len(brokers)} "
                f"broker(s) {found.what}.{found.why_few}"
            )
    return (
        yield from place.steps(
            brokers,
            partitions=partitions,
            replication_factor=factor,
            start=start,
            what=found.what,
            why_few=found.why_few,
        )
    )


def _manual_replicas(
    image: MetadataImage, topic: NewTopic, configs: Mapping[str, str]
) -> Steps[list[tuple[int, ...]]]:
    if topic.replication_factor != DEFAULT:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != DEFAULT:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    by_index: dict[int, tuple[int, ...]] = {}
    for entry in topic.assignments:
        if entry.partition_index in by_index:
            raise InvalidReplicaAssignmentError(
                f"Found multiple manual partition assignments for partition {entry.partition_index}"
            )
        by_index[entry.partition_index] = tuple(entry.broker_ids)
    if set(by_index) != set(range(len(by_index))):
        raise InvalidReplicaAssignmentError(
            "partitions should be a consecutive 0-based integer sequence"
        )
    ordered = [by_index[index] for index in range(len(by_index))]
    assigned: set[int] = set()
    pace = Pace()
    for index, replicas in enumerate(ordered):
        check_manual(image.brokers, index, replicas, len(ordered[0]))
        assigned.update(replicas)
        if pace.is_step_over():
            yield
    tiered = {one for one in assigned if image.brokers[one].remote_store is not None}
    candidates_for(image, topic.name, configs, tiered).check(sorted(assigned))
    return ordered


def check_manual(
    brokers: Mapping[int, BrokerImage], index: int, replicas: tuple[int, ...], expected: int
) -> None:
    """Check the manual replicas of a new partition.

    Args:
        brokers: All registered ones.
        index: Of the partition, for the message.
        replicas: Broker ids, as in the request.
        expected: Required number of replicas.

    Raises:
        InvalidReplicaAssignmentError: Names the cause.
    """
    check_replicas(brokers, replicas)
    if len(replicas) != expected:
        raise InvalidReplicaAssignmentError(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            f"replica(s), but this is not consistent with previous partitions, which have "
            f"{expected} replica(s)."
        )
    if not any(brokers[broker_id].is_active for broker_id in replicas):
        raise InvalidReplicaAssignmentError(
            f"All brokers specified in the manual partition assignment for partition {index} are "
            "fenced or in controlled shutdown: start one of them, or choose another."
        )


def check_replicas(brokers: Mapping[int, BrokerImage], replicas: tuple[int, ...]) -> None:
    """Refuse an empty list of replicas, unknown brokers and repeated ones.

    Raises:
        InvalidReplicaAssignmentError: Names the cause.
    """
    if not replicas:
        raise InvalidReplicaAssignmentError(
            "The manual partition assignment includes an empty replica list."
        )
    for broker_id in sorted(replicas):  # Kafka names the lowest wrong id
        if broker_id not in brokers:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered."
            )
        if replicas.count(broker_id) > 1:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
