"""On which brokers the replicas of new partitions go.

Racks first, then brokers, in a striped order: replica i of a partition goes to another rack than
replica i-1 as long as there are racks, and the next partition starts one broker further. Fenced
brokers get replicas only where the active ones do not suffice, and never the leader.

Source: the rules of Kafka's StripedReplicaPlacer; the order within is ours.
"""

from collections.abc import Sequence

from metadata_topic.controller.errors import InvalidReplicationFactorError
from metadata_topic.image.model import BrokerImage


def place(
    brokers: Sequence[BrokerImage], *, partitions: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """Choose replicas for every partition.

    Args:
        brokers: all registered, in any order.
        partitions: how many lists to make.
        replication_factor: how long each list is.
        start: any number; shifts the first leader, so that topics of one partition spread.

    Returns:
        Per partition broker ids, the leader first.

    Raises:
        InvalidReplicationFactorError: too few brokers, or none that could lead.
    """
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): the target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered."
        )
    active = _striped([b for b in brokers if b.is_active])
    idle = _striped([b for b in brokers if not b.is_active])
    if not active:
        raise InvalidReplicationFactorError(
            "Unable to place a partition: all brokers are currently fenced or in controlled "
            "shutdown."
        )
    placed = []
    for index in range(partitions):
        shift = start + index
        # After each full turn the followers shift by one, so that pairs of brokers vary.
        turn = shift // len(active)
        leader = active[shift % len(active)]
        followers = [b for b in active if b != leader]
        if followers:
            at = (shift + turn) % len(followers)
            followers = followers[at:] + followers[:at]
        placed.append((leader, *(followers + idle))[:replication_factor])
    return placed


def _striped(brokers: Sequence[BrokerImage]) -> list[int]:
    """Broker ids, one rack after the other: a1 b1 c1 a2 b2 c2."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack or "", []).append(broker.id)
    ordered = [racks[rack] for rack in sorted(racks)]
    longest = max((len(ids) for ids in ordered), default=0)
    return [ids[turn] for turn in range(longest) for ids in ordered if turn < len(ids)]
