"""Which replicas leave a broker, and which go to one that is new: plans. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_client.blocking import ClusterError
from metadata_topic.controller.placement import with_more_replicas
from tidemark.cluster.asking import BrokerState, PartitionState, Reassigning, TargetReplicas

Place = tuple[str, int]
Sizes = Mapping[int, Mapping[Place, int]]
"""Bytes on disk of each replica, by broker, topic and partition; of one that is remote its local
part, which is what a move copies."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts from which plans are made.

    Attributes:
        everything: all partitions.
        brokers: by id, fenced ones too.
        sizes: see `Sizes`; brokers may be missing.
        going: what is being reassigned.
    """

    everything: Sequence[PartitionState]
    brokers: Mapping[int, BrokerState]
    sizes: Sizes
    going: Mapping[Place, Reassigning]

    def leaving(self, broker_id: int) -> dict[Place, Reassigning]:
        """The reassignments that take a replica away from a broker."""
        return {place: one for place, one in self.going.items() if broker_id in one.removing}

    def arriving(self, broker_id: int) -> dict[Place, Reassigning]:
        """The reassignments that give a replica to a broker."""
        return {place: one for place, one in self.going.items() if broker_id in one.adding}

    def settled(self, one: PartitionState) -> tuple[int, ...]:
        """The replicas that a partition has once what continues is complete."""
        return settled(one, self.going)


def settled(one: PartitionState, going: Mapping[Place, Reassigning]) -> tuple[int, ...]:
    """The replicas of a partition without those that leave."""
    removing = going.get((one.topic, one.index), Reassigning()).removing
    return tuple(replica for replica in one.replicas if replica not in removing)


@dataclass(frozen=True, slots=True)
class Move:
    """One replica goes from a broker to another, and takes its place in the order.

    Attributes:
        size_bytes: what has to be copied, as far as it is known.
    """

    wanted: TargetReplicas
    source: int
    target: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.wanted.topic}-{self.wanted.index}"


class Loads:
    """How full brokers are: bytes on their disks, and a little for each replica."""

    _REPLICA_BYTES = 1 << 20
    """The weight of an empty replica, so that these are spread, too."""

    def __init__(self, facts: Facts) -> None:
        """Count what will be there once all that continues is complete."""
        self._sizes = facts.sizes
        self.by_broker: Counter[int] = Counter()
        for one in facts.everything:
            for replica in facts.settled(one):
                self.by_broker[replica] += self.weight(one)

    def bytes_of(self, one: PartitionState) -> int:
        """The size of a partition: of its leader's replica, or of the largest known."""
        place = one.topic, one.index
        led = self._sizes.get(one.leader, {}).get(place)
        if led is not None:
            return led
        return max((self._sizes.get(each, {}).get(place, 0) for each in one.replicas), default=0)

    def weight(self, one: PartitionState) -> int:
        """The weight of one of its replicas."""
        return self.bytes_of(one) + self._REPLICA_BYTES

    def moved(self, one: PartitionState, source: int, target: int) -> None:
        """Count a replica where it will be."""
        self.by_broker[source] -= self.weight(one)
        self.by_broker[target] += self.weight(one)


def drained(broker_id: int, facts: Facts) -> list[Move]:
    """Choose a broker for each replica on `broker_id`: another rack first, then the emptiest.

    Fenced brokers get nothing; replicas that leave already are passed over.

    Args:
        broker_id: it may be fenced: what it has is copied from leaders.
        facts: of the cluster.

    Returns:
        The moves, largest first: what takes longest begins first.

    Raises:
        ClusterError: too few brokers serve.
    """
    brokers = facts.brokers.values()
    serving = [one.id for one in brokers if not one.is_fenced and one.id != broker_id]
    racks = {one.id: one.rack for one in brokers}
    loads = Loads(facts)
    hosted = [one for one in facts.everything if broker_id in facts.settled(one)]
    moves: list[Move] = []
    for one in sorted(hosted, key=loads.weight, reverse=True):
        replicas = facts.settled(one)
        rest = [replica for replica in replicas if replica != broker_id]
        if not rest and one.leader < 0:
            raise ClusterError(
                f"{one} cannot leave broker {broker_id}: its only replica is there, and cannot be "
                f"read. Start broker {broker_id}, and give the command again"
            )
        chosen = with_more_replicas(
            rest, serving, racks=racks, load=loads.by_broker, factor=len(replicas)
        )
        if len(chosen) < len(replicas):
            raise ClusterError(
                f"{one} cannot leave broker {broker_id}: it has {len(replicas)} replica(s), and "
                f"{len(serving)} other broker(s) serve: {_list(serving)}. Start another "
                "broker, and give the command again"
            )
        moves.append(_move(one, replicas, broker_id, chosen[-1], loads))
    return moves


def filled(broker_id: int, facts: Facts) -> list[Move]:
    """Choose replicas that go to `broker_id` until it is as full as brokers are on average.

    They come from the fullest brokers, the largest ones that fit. No partition gets fewer racks.
    From fenced brokers nothing is taken; what is being reassigned stays as it is.

    Args:
        broker_id: serves.
        facts: of the cluster.

    Returns:
        The moves, largest first.
    """
    brokers = facts.brokers.values()
    serving = [one.id for one in brokers if not one.is_fenced]
    racks = {one.id: one.rack for one in brokers}
    loads = Loads(facts)
    load = loads.by_broker
    average = sum(load[one] for one in serving) // len(serving)
    free = [one for one in facts.everything if (one.topic, one.index) not in facts.going]
    free.sort(key=loads.weight, reverse=True)
    moves: list[Move] = []
    for one in free:
        weight = loads.weight(one)
        if broker_id in one.replicas or load[broker_id] + weight > average:
            continue
        sources = [
            each
            for each in one.replicas
            if each in serving
            and load[each] - weight >= load[broker_id]
            and _keeps_racks(one.replicas, each, broker_id, racks)
        ]
        if sources:
            source = max(sources, key=lambda each: (load[each], each))
            moves.append(_move(one, one.replicas, source, broker_id, loads))
    return moves


def _keeps_racks(
    replicas: Sequence[int], source: int, target: int, racks: Mapping[int, str]
) -> bool:
    before = {racks.get(one, "") for one in replicas}
    after = {racks.get(target if one == source else one, "") for one in replicas}
    return len(after) >= len(before)


def _move(
    one: PartitionState, replicas: Sequence[int], source: int, target: int, loads: Loads
) -> Move:
    loads.moved(one, source, target)
    # It takes the place of the other in the order: preferred leaders are spread as replicas are.
    new = tuple(target if replica == source else replica for replica in replicas)
    return Move(TargetReplicas(one.topic, one.index, new), source, target, loads.bytes_of(one))


def summary(moves: Iterable[Move]) -> Iterator[tuple[int, int, int, int]]:
    """From which broker to which how many replicas go, and how many bytes."""
    counts: Counter[tuple[int, int]] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for one in moves:
        counts[one.source, one.target] += 1
        sizes[one.source, one.target] += one.size_bytes
    for source, target in sorted(counts):
        yield source, target, counts[source, target], sizes[source, target]


def _list(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
