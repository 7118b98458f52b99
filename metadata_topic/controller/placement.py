"""Choice of brokers for the replicas of new partitions.

Replicas are spread over racks first, then over brokers. Each further replica goes to a rack with
the fewest replicas of this partition, and the next partition starts one broker later. Fenced
brokers get replicas only if the active ones do not suffice, and are never the leader.

Source: the rules of Kafka's StripedReplicaPlacer; the order within is ours.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from metadata_topic.controller.errors import InvalidReplicationFactorError
from metadata_topic.image.model import BrokerImage
from runtime.work import Pace, Steps, stepwise

_PLACED_WORK: Final = 10


@stepwise
def place(
    brokers: Sequence[BrokerImage],
    *,
    partitions: int,
    replication_factor: int,
    start: int,
    what: str = "are registered",
    why_few: str = "",
) -> Steps[list[tuple[int, ...]]]:
    """Choose replicas for every partition, in steps.

    Args:
        brokers: All that may get a replica, in any order.
        partitions: Number of lists to return.
        replication_factor: Length of each list.
        start: Any number; shifts the first leader, so that one-partition topics spread.
        what: Property shared by `brokers`, for the error message.
        why_few: End of the error message.

    Returns:
        Broker ids of each partition, the leader first.

    Raises:
        InvalidReplicationFactorError: Too few brokers, or no active one.
    """
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): the target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) {what}.{why_few}"
        )
    racks = {broker.id: broker.rack or "" for broker in brokers}
    active = _striped([b for b in brokers if b.is_active])
    idle = _striped([b for b in brokers if not b.is_active])
    if not active:
        raise InvalidReplicationFactorError(
            f"Unable to place a partition: all brokers that {what} are currently fenced or in "
            f"controlled shutdown.{why_few}"
        )
    placed: list[tuple[int, ...]] = []
    pace = Pace()
    for shift in range(start, start + partitions):
        turn, at = divmod(shift, len(active))
        others = active[at + 1 :] + active[:at]
        # After each full turn of leaders the followers shift by one, so that pairs vary.
        by = turn % len(others) if others else 0
        candidates = others[by:] + others[:by]
        placed.append(_spread([active[at]], candidates, idle, racks, replication_factor))
        if pace.is_step_over(_PLACED_WORK):
            yield
    return placed


def with_more_replicas(
    replicas: Sequence[int],
    candidates: Iterable[int],
    *,
    racks: Mapping[int, str],
    load: Mapping[int, int],
    factor: int,
) -> tuple[int, ...]:
    """Choose further replicas of an existing partition.

    Args:
        replicas: Its present replicas; they come first, and stay.
        candidates: Brokers that may get one; present replicas among them are ignored.
        racks: Of candidates and replicas, where known.
        load: Replicas by broker; within a rack the broker with fewer comes first.
        factor: Replicas to reach; the result has fewer if candidates are too few.
    """
    others = sorted(set(candidates).difference(replicas), key=lambda one: (load.get(one, 0), one))
    known = {one: racks.get(one, "") for one in (*replicas, *others)}
    return _spread([*replicas], others, (), known, factor)


def _spread(
    chosen: list[int],
    active: Sequence[int],
    idle: Sequence[int],
    racks: Mapping[int, str],
    count: int,
) -> tuple[int, ...]:
    """Add candidates to `chosen` up to `count`, each from the rack used least so far."""
    for pool in (list(active), list(idle)):
        while pool and len(chosen) < count:
            used = Counter(racks[broker_id] for broker_id in chosen)
            best = min(pool, key=lambda broker_id: used[racks[broker_id]])
            pool.remove(best)
            chosen.append(best)
    return tuple(chosen)


def _striped(brokers: Sequence[BrokerImage]) -> list[int]:
    """Broker ids, one rack after the other: a1 b1 c1 a2 b2 c2."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.id):
        racks.setdefault(broker.rack or "", []).append(broker.id)
    ordered = [racks[rack] for rack in sorted(racks)]
    longest = max((len(ids) for ids in ordered), default=0)
    return [ids[turn] for turn in range(longest) for ids in ordered if turn < len(ids)]
