"""What happens to the replicas of this broker, by name, for whoever hangs on it.

The tier does, and so will coordinators and replication.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.replica.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEvents:
    """What happened in one turn of the event loop.

    Attributes:
        led: led here from now on, or still, under other terms: epoch, replicas, in-sync replicas.
        followed: led elsewhere, or nowhere.
        gone: not hosted here any more; retired.
        configured: their topic's settings have changed.
        topics_gone: ids of topics that the metadata hold no more, whoever hosted them.
    """

    led: tuple[Partition, ...] = ()
    followed: tuple[Partition, ...] = ()
    gone: tuple[Partition, ...] = ()
    configured: tuple[Partition, ...] = ()
    topics_gone: tuple[bytes, ...] = ()


Listener = Callable[[ReplicaEvents], None]
