"""The values of the page, as plain tuples: `broker.process.console` collects them.

Offsets: `end` is exclusive; -1 means that a value is not known, or that there is none.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class PartitionFacts(NamedTuple):
    """A replica of this broker.

    Attributes:
        is_internal: Of a topic that brokers make for themselves.
        is_led: This broker leads it.
        leader: Node id; -1: none is known, or it is this broker and its replica is offline.
        replicas, isr: Their number, and how many are in sync.
        is_tiered: Its segments are copied to the remote tier, or were.
        log_start: First offset, local or remote.
        local_start: First offset on the local disk.
        copied_end: Offsets from the log start to here are durably in the remote tier.
        committed_end: The high watermark.
        size_bytes: Of the local log.
        problem: Why it is unhealthy; "": it is healthy.
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
    """A consumer group that this broker coordinates; `offsets`: number of committed ones."""

    group_id: str
    state: str
    members: int
    offsets: int


class CommittedFacts(NamedTuple):
    """A group's committed offset of a partition: the next one that it reads."""

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
    """A voter or an observer; `behind`: records not fetched yet, by the leader's view."""

    id: int
    log_end: int
    behind: int


class QuorumFacts(NamedTuple):
    """The metadata quorum in this node's view; only its leader has the progress of the others."""

    epoch: int
    leader_id: int
    is_leader: bool
    high_watermark: int
    voters: Sequence[ReplicaOfQuorum]
    observers: Sequence[ReplicaOfQuorum]


class TierFacts(NamedTuple):
    """The tier process: down, starting, configured, up or stopped; partitions sent and ready."""

    process: str
    pid: int
    restarts: int
    assigned: int
    ready: int


class Source(Protocol):
    """A node that the page can show.

    Iterators are read over many iterations of the event loop: changes meanwhile may be missing.
    """

    def partitions(self) -> Iterator[PartitionFacts]:
        """Replicas of this broker, including offline ones."""
        ...

    def groups(self) -> Iterator[GroupFacts]:
        """Groups that this broker coordinates."""
        ...

    def committed(self) -> Iterator[CommittedFacts]:
        """Offsets of these groups; some may not be committed to `__consumer_offsets` yet."""
        ...

    def committed_end(self, topic: str, partition: int) -> int:
        """High watermark of an in-sync replica here; -1 without one.

        A follower's may be as old as its last fetch: half a second.
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
    """A node at its start, without values."""

    def partitions(self) -> Iterator[PartitionFacts]:
        """Return nothing."""
        return iter(())

    def groups(self) -> Iterator[GroupFacts]:
        """Return nothing."""
        return iter(())

    def committed(self) -> Iterator[CommittedFacts]:
        """Return nothing."""
        return iter(())

    def committed_end(self, topic: str, partition: int) -> int:
        """Return -1, for unknown."""
        return -1

    def brokers(self) -> Iterator[BrokerFacts]:
        """Return nothing."""
        return iter(())

    def quorum(self) -> QuorumFacts | None:
        """Return None, for unknown."""
        return None

    def tier(self) -> TierFacts | None:
        """Return None, for no tier."""
        return None
