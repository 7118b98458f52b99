"""Request and result of a fetch, for each partition and for all of them together."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.replica.partition import Partition
from runtime.disk import FileRegion

PartitionKey = tuple[str | bytes, int]
"""Topic name, or topic id from version 13 on, and partition: unique within a session."""


@dataclass(slots=True, eq=False)
class FetchPartition:
    """One partition as a client asked for it.

    Attributes:
        topic: Name; empty where the id is unknown here.
        topic_id: 16 bytes; None where the client names topics (below version 13).
        max_bytes: Bound for this partition.
        current_leader_epoch: From the client's metadata; -1: not given.
        last_fetched_epoch: Of a follower's last record; -1 for consumers.
        log_start_offset: A follower's own, checkpointed; -1 for consumers.
        sent_high_watermark, sent_log_start_offset: Of the last answer in this session.
        order: Position of the partition in the order in which a fetch reads.
    """

    key: PartitionKey
    topic: str
    topic_id: bytes | None
    index: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    sent_high_watermark: int = field(default=-1, init=False)
    sent_log_start_offset: int = field(default=-1, init=False)
    order: int = field(default=0, init=False)


class PartitionRead:
    """The result of reading one partition.

    Attributes:
        error: Kafka's code, 0 without.
        aborted: Aborted transactions in the read range, (producer id, first offset); None for read
            uncommitted.
        regions: Whole batches to send, as they are in the files.
        partition: The partition that was read; None if it is not here.
        leader: Broker id and leader epoch, for a client that asked the wrong broker.
        at_end: The client has everything; only a change brings another answer.
        diverging: (epoch, end offset) up to which the follower's log agrees with this one.
        nearer: The replica that a consumer is sent to; nothing was read here.
    """

    __slots__ = (
        "aborted",
        "at_end",
        "diverging",
        "error",
        "fetch",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "nearer",
        "partition",
        "regions",
        "size_bytes",
    )

    def __init__(self, fetch: FetchPartition, error: int = 0) -> None:
        self.fetch = fetch
        self.error = error
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.aborted: list[tuple[int, int]] | None = None
        self.regions: Sequence[FileRegion | memoryview] = ()
        self.size_bytes = 0
        self.at_end = False
        self.diverging: tuple[int, int] | None = None
        self.partition: Partition | None = None
        self.leader: tuple[int, int] | None = None
        self.nearer: int | None = None


@dataclass(frozen=True, slots=True)
class FetchParams:
    """The settings of a fetch that hold for all its partitions.

    Attributes:
        max_bytes: Of the answer, already bounded by `fetch.max.bytes`.
        min_bytes: The fetch is answered once it has this many bytes; bounded by `max_bytes`.
        read_committed: Records of open and aborted transactions are left out.
        replica_id: -1 for consumers.
        broker_epoch: Of a follower's incarnation; -1 where the version of its Fetch has no field.
        listener: Where the request arrived; leaders are named by their address on it.
        peer: Address and port of the client.
        may_ask_followers: The consumer can read from a replica nearer to it (KIP-392).
        near: Brokers that are nearer to this consumer than this one; empty: it stays here.
    """

    version: int
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    broker_epoch: int = -1
    listener: str = ""
    peer: tuple[str, int] = ("", 0)
    may_ask_followers: bool = False
    near: frozenset[int] = frozenset()


@dataclass(slots=True)
class RemoteReadNeeded:
    """A read whose offset is in the remote tier only."""

    index: int
    max_bytes: int
    min_one_batch: bool


@dataclass(slots=True)
class ColdRead:
    """A read that has to wait for the disk, on a pool thread."""

    partition: Partition
    offset: int
    max_bytes: int
    end: int


@dataclass(slots=True)
class FetchPass:
    """One pass over partitions of a fetch.

    Attributes:
        may_wait: Reads may wait for the disk.
        cold: Reads that would have waited; the pass is repeated when they are ready.
        checked_bytes: Of durable topics, whose batches were checked on the event loop.
        must_answer: The fetch is answered without waiting for more bytes.
    """

    reads: list[PartitionRead] = field(default_factory=list)
    remote: list[RemoteReadNeeded] = field(default_factory=list)
    size_bytes: int = 0
    checked_bytes: int = 0
    must_answer: bool = False
    may_wait: bool = True
    cold: list[ColdRead] = field(default_factory=list)
