"""How many replicas partitions have: what raising it asks for, and who can be stopped. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_client.blocking import ClusterError
from metadata_topic.controller.placement import with_more_replicas
from metadata_topic.image.model import joining_replicas
from tidemark.cluster.asking import BrokerState, PartitionState, Reassigning, TargetReplicas
from tidemark.cluster.moving import settled


@dataclass(frozen=True, slots=True)
class RaisedFactor:
    """The reassignments to ask for.

    Attributes:
        wanted: of the partitions that have fewer replicas.
        topics: per topic how many of its partitions that are.
        enough: topics that have as many replicas already, or more.
    """

    wanted: tuple[TargetReplicas, ...]
    topics: Mapping[str, int]
    enough: tuple[str, ...]


def raised_factor(
    everything: Sequence[PartitionState],
    brokers: Mapping[int, BrokerState],
    factor: int,
    topics: Collection[str],
    going: Mapping[tuple[str, int], Reassigning],
) -> RaisedFactor:
    """Choose replicas so that each partition of `topics` has `factor`, or keeps more.

    Replicas that are leaving do not count, and continue to leave.

    Args:
        everything: all partitions: how many replicas a broker has counts.
        brokers: by id; fenced ones get none, for they could not copy anything now.
        factor: how many replicas.
        topics: all are in `everything`.
        going: what is being reassigned.

    Raises:
        ClusterError: too few brokers serve.
    """
    serving = [one.id for one in brokers.values() if not one.is_fenced]
    racks = {one.id: one.rack for one in brokers.values()}
    load = Counter(replica for one in everything for replica in one.replicas)
    wanted: list[TargetReplicas] = []
    for one in everything:
        kept = settled(one, going)
        if one.topic in topics and len(kept) < factor:
            stays = [each for each in serving if each in kept or each not in one.replicas]
            replicas = with_more_replicas(kept, stays, racks=racks, load=load, factor=factor)
            if len(replicas) < factor:
                raise _too_few(one, replicas, factor, brokers)
            load.update(replicas[len(kept) :])
            wanted.append(TargetReplicas(one.topic, one.index, replicas))
    counts = Counter(one.topic for one in wanted)
    return RaisedFactor(tuple(wanted), counts, tuple(sorted(set(topics) - counts.keys())))


def _too_few(
    one: PartitionState,
    replicas: Sequence[int],
    factor: int,
    brokers: Mapping[int, BrokerState],
) -> ClusterError:
    idle = [each.id for each in brokers.values() if each.is_fenced and each.id not in replicas]
    start = f"Start broker(s) {_list(idle)}, which are fenced" if idle else "Start another broker"
    return ClusterError(
        f"{one} cannot have {factor} replicas: brokers {_list(replicas)} can have one. {start}, or "
        f"ask for {len(replicas)} at most; nothing was changed"
    )


def progress(
    ongoing: Mapping[tuple[str, int], Reassigning], brokers: Mapping[int, BrokerState]
) -> str:
    """Say what is still to be copied, and what it waits for."""
    text = f"{len(ongoing)} partition(s) are being copied"
    adding = Counter(one for each in ongoing.values() for one in each.adding)
    silent = [one for one in sorted(adding) if one not in brokers or brokers[one].is_fenced]
    if silent:
        counts = ", ".join(f"broker {one} ({adding[one]} of them)" for one in silent)
        text += f"; start {counts}: fenced"
    return text


def endangered(
    broker_id: int,
    partitions: Iterable[PartitionState],
    min_isr: Mapping[str, int],
    going: Mapping[tuple[str, int], Reassigning],
    *,
    may_stop_lone: bool = False,
) -> Iterator[str]:
    """Say which partitions would lack a leader or in-sync replicas without a broker, and how.

    Args:
        broker_id: the one that is to stop.
        partitions: those without a replica on it are passed over.
        min_isr: `min.insync.replicas` by topic.
        going: what is being reassigned, by topic and partition.
        may_stop_lone: partitions of one replica do not count.
    """
    for one in partitions:
        if broker_id not in one.replicas or (len(one.replicas) == 1 and may_stop_lone):
            continue
        left = [member for member in one.isr if member != broker_id]
        adding = going.get((one.topic, one.index), Reassigning()).adding
        joining = joining_replicas(adding, one.isr, one.elr)
        counted = [replica for replica in one.replicas if replica not in joining]
        needed = min(min_isr.get(one.topic, 1), len(counted))
        if not left:
            others = f"no other of replicas {_list(one.replicas)} is in sync"
            why = others if len(one.replicas) > 1 else "it has one replica"
            yield f"{one} would have no leader: {why}"
        elif len(left) < needed:
            yield (
                f"{one} would have {len(left)} in-sync replica(s), {_list(left)}, and "
                f"min.insync.replicas={needed}"
            )


def _list(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
