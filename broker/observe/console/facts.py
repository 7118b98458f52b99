"""What the page shows, as plain values: `broker.process.console` gathers them.

Offsets: `end` is exclusive; -1 means that a value is not known, or that there is none.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class PartitionFacts(NamedTuple):
    """A replica of this broker.

    Attributes:
        is_internal: of a topic that brokers make for themselves.
        is_led: this broker leads it.
        leader: node id; -1: none is known, or it is this broker and its replica is offline.
        replicas, isr: how many there are, and how many are in sync.
        is_tiered: its segments are copied to the remote tier, or were.
        log_start: first offset, local or remote.
        local_start: first offset on the local disk.
        copied_end: offsets from the log start to here are durably in the remote tier.
        committed_end: the high watermark.
        size_bytes: of the local log.
        problem: why it is ill; "": it is well.
    """

    topic: str
    partition: int
    is_internal: bool = False
    is_led: bool = False
    leader: int = -1
    replicas: int = 0
    isr: int = 0
    is_tiered: bool = False
    log_start: int = -1
    local_start: int = -1
    copied_end: int = -1
    committed_end: int = -1
    log_end: int = -1
    size_bytes: int = 0
    problem: str = ""


class GroupFacts(NamedTuple):
    """A consumer group that this broker coordinates; `offsets`: how many it has committed."""

    group_id: str
    state: str
    members: int
    offsets: int


class CommittedFacts(NamedTuple):
    """The offset that a group has committed of a partition: the next one that it reads."""

    group_id: str
    topic: str
    partition: int
    offset: int


class BrokerFacts(NamedTuple):
    """A registered broker; `endpoints` as host:port."""

    id: int
    endpoints: Sequence[str]
    rack: str
    fenced: bool
    in_controlled_shutdown: bool
    has_tier: bool


class ReplicaOfQuorum(NamedTuple):
    """A voter or an observer; `behind`: records that it has not fetched, as the leader knows."""

    id: int
    log_end: int
    behind: int


class QuorumFacts(NamedTuple):
    """The metadata quorum, as this node sees it; only its leader knows how far others are."""

    epoch: int
    leader_id: int
    is_leader: bool
    high_watermark: int
    voters: Sequence[ReplicaOfQuorum]
    observers: Sequence[ReplicaOfQuorum]


class TierFacts(NamedTuple):
    """The tier process: down, starting, configured, up or stopped; partitions told and ready."""

    process: str
    pid: int
    restarts: int
    assigned: int
    ready: int


class Source(Protocol):
    """A node that can be looked at.

    Iterators are walked over many iterations of the event loop: what changes meanwhile may be
    missing.
    """

    def partitions(self) -> Iterator[PartitionFacts]:
        """Replicas of this broker, those that are offline with them."""
        ...

    def groups(self) -> Iterator[GroupFacts]:
        """Groups that this broker coordinates."""
        ...

    def committed(self) -> Iterator[CommittedFacts]:
        """Their offsets; some may not be committed to `__consumer_offsets` yet."""
        ...

    def committed_end(self, topic: str, partition: int) -> int:
        """High watermark of an in-sync replica here; -1 where there is none.

        Of one that does not lead it may be as old as its last fetch: half a second.
        """
        ...

    def brokers(self) -> Iterator[BrokerFacts]:
        """The brokers of the cluster."""
        ...

    def quorum(self) -> QuorumFacts | None:
        """The metadata quorum; None before it is known."""
        ...

    def tier(self) -> TierFacts | None:
        """The tier process; None where there is none."""
        ...


def with_lag(source: Source) -> Iterator[tuple[CommittedFacts, int]]:
    """Each committed offset with the committed records behind it: 0 where it is above their end.

    -1 where that end is not known.
    """
    for one in source.committed():
        end = source.committed_end(one.topic, one.partition)
        yield one, -1 if end < 0 else max(end - one.offset, 0)


class NothingYet:
    """A node that starts."""

    def partitions(self) -> Iterator[PartitionFacts]:
        """None."""
        return iter(())

    def groups(self) -> Iterator[GroupFacts]:
        """None."""
        return iter(())

    def committed(self) -> Iterator[CommittedFacts]:
        """None."""
        return iter(())

    def committed_end(self, topic: str, partition: int) -> int:
        """Not known."""
        return -1

    def brokers(self) -> Iterator[BrokerFacts]:
        """None."""
        return iter(())

    def quorum(self) -> QuorumFacts | None:
        """Not known."""
        return None

    def tier(self) -> TierFacts | None:
        """None."""
        return None
