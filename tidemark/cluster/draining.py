"""Where the replicas of a log directory go when it is drained. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from kafka_client.blocking import ClusterError
from tidemark.cluster.asking import BrokerState, LogDirectory
from tidemark.cluster.moving import Place

REPLICA_BYTES = 1 << 20
"""The weight of an empty replica, so that these are spread, too."""


def found_directory(
    path: str, directories: Mapping[int, Sequence[LogDirectory]], broker: int | None
) -> int:
    """The broker that has this log directory.

    Args:
        path: as it is in `log.dirs`.
        directories: of brokers that serve.
        broker: the one that is meant; None: there is only one.

    Raises:
        ClusterError: no broker has it, or several do.
    """
    having = [
        one
        for one, held in directories.items()
        if broker in (None, one) and any(each.path == path for each in held)
    ]
    if len(having) == 1:
        return having[0]
    if having:
        ids = ", ".join(map(str, having))
        raise ClusterError(f"brokers {ids} have a log directory {path}: say which with --broker")
    shown = sorted({each.path for held in directories.values() for each in held})
    raise ClusterError(f"no broker that serves has {path} in log.dirs; there are {shown}")


def targets(path: str, directories: Sequence[LogDirectory]) -> dict[Place, str]:
    """The directory for each replica at `path` that is not leaving it yet.

    Large ones first, each to the directory that has the fewest bytes then and room for it.

    Raises:
        ClusterError: a replica has room nowhere, or there is no other directory.
    """
    others = [one for one in directories if one.path != path and not one.error]
    if not others:
        raise ClusterError(f"{path} is the only log directory that works: there is no other")
    (drained,) = (one for one in directories if one.path == path)
    leaving = {place for one in others for place in one.arriving}
    loads = {one.path: sum(_weights(one, drained)) for one in others}
    free_bytes = {one.path: one.usable_bytes for one in others}
    wanted: dict[Place, str] = {}
    left = [(size, place) for place, size in drained.replicas.items() if place not in leaving]
    for size, place in sorted(left, key=lambda one: (-one[0], one[1])):
        fitting = [one for one in loads if free_bytes[one] < 0 or free_bytes[one] >= size]
        if not fitting:
            topic, index = place
            raise ClusterError(
                f"{topic}-{index} has {size} bytes, and no other log directory has room for it"
            )
        target = min(fitting, key=lambda one: (loads[one], one))
        wanted[place] = target
        loads[target] += size + REPLICA_BYTES
        free_bytes[target] -= size if free_bytes[target] >= 0 else 0
    return wanted


def _weights(one: LogDirectory, drained: LogDirectory) -> Iterator[int]:
    """The weight of each replica that is there, or will be."""
    for size in one.replicas.values():
        yield size + REPLICA_BYTES
    for place, size in one.arriving.items():
        yield max(size, drained.replicas.get(place, 0)) + REPLICA_BYTES


def serving(brokers: Mapping[int, BrokerState], broker: int | None) -> list[BrokerState]:
    """The brokers that can be asked for their directories.

    Raises:
        ClusterError: the one that is meant is not there, or does not serve.
    """
    if broker is not None and broker not in brokers:
        ids = ", ".join(map(str, brokers))
        raise ClusterError(f"there is no broker {broker}; the cluster has {ids}")
    if broker is not None and brokers[broker].is_fenced:
        raise ClusterError(f"broker {broker} is fenced: start it, its replicas move while it runs")
    return [one for one in brokers.values() if not one.is_fenced and broker in (None, one.id)]
