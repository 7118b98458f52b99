"""What a fetch asks of one partition, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.replica.partition import Partition
from runtime.disk import FileRegion

PartitionKey = tuple[str | bytes, int]
"""Topic name, or topic id from version 13 on, and partition: unique within a session."""


@dataclass(slots=True, eq=False)
class FetchPartition:
    """One partition as a consumer asked for it.

    Attributes:
        topic: name; empty where the id is unknown here.
        topic_id: 16 bytes; None where the client names topics (below version 13).
        max_bytes: bound for this partition.
        current_leader_epoch: what the client's metadata says; -1 if it does not say.
        last_fetched_epoch: of a replica's last record; -1 for consumers.
        log_start_offset: a replica's own, checkpointed; -1 for consumers.
        sent_high_watermark, sent_log_start_offset: what the session's client heard last.
        order: a fetch reads its partitions in the order of these.
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
    """What one partition answers.

    Attributes:
        error: Kafka's code, 0 without.
        aborted: aborted transactions in the read range, (producer id, first offset); None for read
            uncommitted.
        regions: whole batches to send, as they stand in files.
        partition: where it was read, None if there is no such partition here.
        leader: broker id and leader epoch, where the client has asked the wrong one.
        at_end: the asker has seen everything; only something new brings another answer.
        diverging: (epoch, end offset) up to which the asker's log agrees with ours.
        nearer: the replica that a consumer is sent to; nothing was read here.
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
    """What a fetch asks for all its partitions together.

    Attributes:
        max_bytes: of the answer, already bounded by `fetch.max.bytes`.
        min_bytes: answer at once when there are so many; bounded by `max_bytes`.
        read_committed: show nothing of open or aborted transactions.
        replica_id: -1 for consumers.
        broker_epoch: of a replica's incarnation; -1 where its version does not say.
        listener: where it came in; leaders are named as that listener's clients reach them.
        peer: the connection's other side.
        may_ask_followers: a consumer that knows of replicas nearer to it (KIP-392).
        near: brokers that are nearer to this consumer than this one; empty: it stays here.
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
    """A read whose offset is only in the remote tier."""

    index: int
    max_bytes: int
    min_one_batch: bool


@dataclass(slots=True)
class ColdRead:
    """A read for which the disk must be waited for, on a pool thread."""

    partition: Partition
    offset: int
    max_bytes: int
    end: int


@dataclass(slots=True)
class FetchPass:
    """One pass over partitions of a fetch.

    Attributes:
        may_wait: the disk may be waited for.
        cold: reads that would have waited; the pass must be repeated when they are ready.
        checked_bytes: of durable topics, whose batches were checked on the loop.
        must_answer: the client does not wait for more bytes.
    """

    reads: list[PartitionRead] = field(default_factory=list)
    remote: list[RemoteReadNeeded] = field(default_factory=list)
    size_bytes: int = 0
    checked_bytes: int = 0
    must_answer: bool = False
    may_wait: bool = True
    cold: list[ColdRead] = field(default_factory=list)
