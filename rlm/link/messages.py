"""The messages between a broker and its tier process: the ports of this package, as data.

Every message about a partition names topic id, partition and leader epoch; whoever gets an answer
for another id or an older epoch drops it. Offsets: `end` is exclusive, `last` is inclusive. File
descriptors travel beside a message (SCM_RIGHTS), in the order its fields name them.

Each request has exactly one answer, or `Failure`. Source: docs/tiering.md, "Two processes".
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from rlm.config import TierConfig
from rsm_plugins.place import StoreIdentity
from rsm_plugins.store_faults import StoreCall, StoreFault
from runtime.health_reasons import HealthText


class RunPasses(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Copy and expire now, without waiting for the interval.

    Answer: Ack once each partition that is ready has ended a copy pass and an expiration pass that
    began after this message came.
    """


class SetStoreFaults(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Exactly these faults of the store are in force. Answer: Ack, not taken without a wrapper.

    Of a fault that hits so often and no more, `count` is what was left of it.
    """

    faults: list[StoreFault]


class StoreFaultHit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One-way: a fault of the store hits a call, which feels it after this was sent."""

    fault_id: int
    call: StoreCall
    topic: str


ControlMessage: TypeAlias = RunPasses | SetStoreFaults | StoreFaultHit
"""All of them: a union."""


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker takes connections. Answer: Ack once the metadata manager took its settings.

    Attributes:
        client_settings: what the manager's Kafka clients need for these connections, by
            librdkafka's names. The token by which the broker knows them is among it.
    """

    client_settings: dict[str, str] = {}

    def __repr__(self) -> str:
        """The names alone."""
        return f"Connect({sorted(self.client_settings)})"


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all messages: immutable, sent as a MessagePack array that begins with its name."""


class PartitionMessage(Message, frozen=True, array_like=True, tag=True):
    """A message about one partition under one leader epoch."""

    topic_id: bytes
    partition: int
    leader_epoch: int


# ---------------------------------------------------------------- answers without facts
class Ack(Message, frozen=True, array_like=True, tag=True):
    """Done. `taken` is False where the other side refused what it was told, and may say why."""

    taken: bool = True
    reason: str = ""


class Failure(Message, frozen=True, array_like=True, tag=True):
    """The request could not be answered. `code` is Kafka's error code, -1 if it has none."""

    code: int
    message: str


# ---------------------------------------------------------------- broker to tier
class Configure(Message, frozen=True, array_like=True, tag=True):
    """First message: who you are. Answer: Configured once the storage plugin took its settings.

    Those of the metadata manager are looked at as far as that is possible without its topic.
    """

    config: TierConfig


class Configured(Message, frozen=True, array_like=True, tag=True):
    """The plugin took its settings.

    Attributes:
        public_settings: names (prefix removed) of those that are no secrets.
        store: which one it has.
    """

    public_settings: list[str]
    store: StoreIdentity


class Reconfigure(Message, frozen=True, array_like=True, tag=True):
    """Settings that change at run time changed: pool sizes and quotas. Answer: Ack."""

    config: TierConfig


class PartitionSettings(msgspec.Struct, frozen=True, array_like=True):
    """What a topic's configuration says to its tier. -1: no limit.

    Attributes:
        mode: "active", "read_only" (remote.log.copy.disable: nothing more is copied, total
            retention continues) or "drop" (tiering was switched off and its remote data is to go).
        copy_lag_ms, copy_lag_bytes: how long, or until how many newer bytes exist, a closed segment
            waits before it is copied; 0 ms: not at all.
    """

    mode: str = "active"
    retention_ms: int = -1
    retention_bytes: int = -1
    copy_lag_ms: int = 0
    copy_lag_bytes: int = -1


class Assign(PartitionMessage, frozen=True, array_like=True, tag=True):
    """This broker hosts the partition; again when role, epoch or settings change. Answer: Ack.

    Attributes:
        metadata_offset: of the image in which the topic was seen to exist, -1 if unknown.
        unclean_epoch: leader epoch of the unclean election that the partition has not recovered
            from, -1 where there is none: what lineages before it wrote proves nothing any more.
    """

    topic: str
    is_leader: bool
    settings: PartitionSettings
    metadata_offset: int = -1
    unclean_epoch: int = -1


class Unassign(PartitionMessage, frozen=True, array_like=True, tag=True):
    """This broker no longer hosts it. After the Ack no further plugin call starts for it."""


class Read(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Read batches from `offset` on, as far as they belong to `offset_epoch`. Answer: ReadAnswer.

    Attributes:
        offset_epoch: epoch of `offset` on the leader's chain.
        epoch_end: first offset that is not of that epoch (exclusive).
        max_bytes: bound of the answer; `min_one_batch` lets one larger batch through.
        read_committed: aborted transactions are wanted with it.
        chain: (epoch, start offset) from that epoch on, if wanted: this lineage alone counts.
        wait_ms: how long the asker waits; the answer comes by then, with data or without.
        holder: the connection that it is for: what it is leased counts against it until that is
            sent.
        read_ahead_bytes: the answer may go so far beyond `max_bytes`, for the reader's next
            questions.
        at_follower: this broker follows the partition: the tier reads first what the metadata topic
            holds at the question, as other owners write it. REPLICA_NOT_AVAILABLE where it cannot.
    """

    offset: int
    offset_epoch: int
    epoch_end: int
    max_bytes: int
    min_one_batch: bool
    read_committed: bool
    wait_ms: int
    holder: str
    read_ahead_bytes: int = 0
    chain: list[tuple[int, int]] = []
    at_follower: bool = False


class OffsetForTimestamp(PartitionMessage, frozen=True, array_like=True, tag=True):
    """First remote offset at or above the log start with timestamp >= `timestamp_ms`.

    Answer: TimestampAnswer. `chain` holds (epoch, start offset) from the log start on.
    """

    timestamp_ms: int
    log_start_offset: int
    chain: list[tuple[int, int]]
    wait_ms: int


class AuxiliaryState(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Epoch chain and producer snapshot of the remote segment that holds (`epoch`, `offset`).

    It ends on the leader's chain, which continues with the epochs `above`, as (epoch, start).
    Answer: AuxiliaryStateAnswer. Asked by a follower that starts above the log start; `wait_ms`
    later the answer comes too late.
    """

    offset: int
    epoch: int
    above: list[tuple[int, int]] = []
    wait_ms: int = 0


class ImageChanged(Message, frozen=True, array_like=True, tag=True):
    """One-way: topics were deleted, or the led metadata partitions changed."""

    led_metadata_partitions: list[int]


class Released(Message, frozen=True, array_like=True, tag=True):
    """One-way: the broker closed what it was leased under these tokens."""

    tokens: list[int]


class Heartbeat(Message, frozen=True, array_like=True, tag=True):
    """Are you alive? Answer: Ack, from the thread that owns the tier's state."""


class DescribeMetrics(Message, frozen=True, array_like=True, tag=True):
    """The next piece of a page of the tier's metrics. Answer: MetricsPiece.

    `page` is a number that the asker chose; another one than in the question before begins a page.
    """

    page: int


class Stop(Message, frozen=True, array_like=True, tag=True):
    """Cancel copies and end. Answer: Ack, after which the process ends."""


# ---------------------------------------------------------------- answers of the tier
class MetricsPiece(Message, frozen=True, array_like=True, tag=True):
    """Whole lines of Prometheus' text format, for the broker's page; `is_last` ends the page."""

    content: bytes
    is_last: bool


class Region(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of the descriptor number `descriptor` beside the message; `token`: see `Released`."""

    descriptor: int
    token: int
    position: int
    size_bytes: int


class ReadAnswer(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Whole batches, or an error code (0: none; no regions and no error: nothing came in time).

    Attributes:
        next_offset: first offset after the last batch (exclusive end); -1 without regions.
        aborted: (producer id, first offset) of transactions aborted within the regions. batch_ends,
        last_offsets: of each batch in the regions, where these go beyond what was asked for
        (`Read.read_ahead_bytes`): end (exclusive) counted in bytes over all regions, and last
        offset (inclusive). Native int64s.
    """

    error: int = 0
    message: str = ""
    regions: list[Region] = []
    next_offset: int = -1
    aborted: list[tuple[int, int]] = []
    batch_ends: bytes = b""
    last_offsets: bytes = b""


class TimestampAnswer(PartitionMessage, frozen=True, array_like=True, tag=True):
    """The record found: its timestamp, offset and epoch; offset -1 if there is none remotely."""

    error: int = 0
    message: str = ""
    timestamp_ms: int = -1
    offset: int = -1
    offset_epoch: int = -1


class AuxiliaryStateAnswer(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Chain up to the segment's end as (epoch, start), snapshot, first offset after it."""

    chain: list[tuple[int, int]]
    producer_snapshot: bytes
    end_offset: int


# ---------------------------------------------------------------- tier to broker
class DescribeLog(PartitionMessage, frozen=True, array_like=True, tag=True):
    """What does the local log look like now? Answer: LogDescription.

    Closed segments wholly below `closed_from` are not named: they were copied, or nobody asks.
    """

    closed_from: int = 0


CLOSED_SEGMENTS_MAX = 500
"""Of one description: about a millisecond of the broker's loop."""


class ClosedLocalSegment(msgspec.Struct, frozen=True, array_like=True):
    """A local segment that is no longer written. `last_offset` is inclusive."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class LogDescription(PartitionMessage, frozen=True, array_like=True, tag=True):
    """The leader's local log at one moment.

    Attributes:
        log_start_known: False if the checkpoint that held the log start was lost.
        log_start_has_no_entry: not known, and the checkpoint file is sound: it never had an entry.
        log_end_offset: first offset not written (exclusive).
        chain: (epoch, start offset) from the log start on, ascending. From the local start on the
            local batches confirm it.
        chain_problem: why nothing is known of it below the local start; "" if something is.
        closed_segments: ascending by base offset, the active one not among them: the first of those
            that reach up to `closed_from` or above it.
        closed_from: what was asked for.
        closed_bytes_below: of the closed segments before them.
        more_closed_count, more_closed_bytes: of those after them.
        unvalidated_end: where the log ended when it was last known to be sound, or was opened: what
            lies above was appended since. -1: it is known to be sound up to its end.
        adopted_epoch: what owners up to this leader epoch gave counts only above the log end, and
            where a finished segment holds it: a person adopted the log as it was. -1: none.
        local_bytes: all local segments, the active one included.
        metadata_offset: of the image in which the topic was seen to exist.
        members_log_start: the other in-sync replicas have checkpointed a log start of at least
            this, so one that leads next knows that what lies below is gone; -1: not known.
        members_highest_log_start: the highest that one of them has checkpointed; -1: none.
    """

    log_start_offset: int
    log_start_known: bool
    local_log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    chain: list[tuple[int, int]]
    closed_segments: list[ClosedLocalSegment]
    local_bytes: int
    metadata_offset: int
    log_end_offset: int
    log_start_has_no_entry: bool = False
    chain_problem: str = ""
    unvalidated_end: int = -1
    adopted_epoch: int = -1
    closed_from: int = 0
    closed_bytes_below: int = 0
    more_closed_count: int = 0
    more_closed_bytes: int = 0
    members_log_start: int = 2**63 - 1
    members_highest_log_start: int = -1


class OpenSegment(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Open a closed segment for copying. Answer: OpenedSegment."""

    base_offset: int


class OpenedSegment(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Beside it: log, offset index, time index, producer snapshot, transaction index if any.

    All checked and fsynced.
    """

    base_offset: int
    size_bytes: int
    transaction_index_is_there: bool
    transaction_index_is_empty: bool
    leader_epoch_index: bytes


class Loss(StrEnum):
    """Why an owner is unhealthy: what was lost. Nothing is copied, raised or deleted then."""

    LEADER_EPOCH = "leader epoch too low"
    LOG_END = "log end lost"
    CHAIN = "chain lost"
    LOG_START = "log start unknown"
    HOLE = "hole"


class CopiedThrough(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Validated sound, and how far the log start's run of durably copied offsets reaches.

    Answer: Ack.

    Attributes:
        last_offset: last offset of the run (inclusive), -1 if the run is empty.
        last_offset_epoch: its epoch on the chain that the tier validated by, -1 if the run is
            empty.
        remote_start: first offset on the chain that is remote, -1 if none.
        remote_bytes: finished segments on the chain.
    """

    last_offset: int
    last_offset_epoch: int
    remote_start: int
    remote_bytes: int


class Restoration(msgspec.Struct, frozen=True, array_like=True):
    """Where a log begins again of which no local record is left, and the remote ones are.

    Attributes:
        begin: the end (exclusive) of the newest finished segment.
        epoch_below: leader epoch of the offset before it.
        end: offsets below it (exclusive) were given, as far as accepted records prove.
        given_epoch: the highest leader epoch under which they may have been given.
    """

    begin: int
    epoch_below: int
    end: int
    given_epoch: int


class LossFound(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Validated, and not sound: the owner is unhealthy, and nothing counts as copied. Answer: Ack.

    Attributes:
        restoration: of a lost log end where nothing is left here; else None.
    """

    loss: Loss
    restoration: Restoration | None = None


class ValidationWithdrawn(PartitionMessage, frozen=True, array_like=True, tag=True):
    """What was reported rests on nothing now: nothing counts as copied. Answer: Ack.

    A loss that was found stays until a later validation ends it.
    """


Report: TypeAlias = CopiedThrough | LossFound | ValidationWithdrawn
"""What an owner has found out about a partition; no report yet is no validation."""


class RaiseLogStart(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Move the log start. Answer: Ack once it is checkpointed and fsynced, by all in-sync replicas.

    Failure 7 (REQUEST_TIMED_OUT) where one of these does not say so in time: it has moved here.

    `reason` is one of "time", "size", "drop", "carried" (records carry a higher one than this log
    had), "rebuilt" (the checkpoint was lost: the offset may then lie below the log start that the
    broker believed in).
    """

    offset: int
    reason: str


class RestoreChain(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Take this epoch chain, which was read from the store. Answer: Ack once it is fsynced.

    Not taken where it contradicts a local batch. `entries` holds (epoch, start offset), ascending,
    from the log start on.
    """

    entries: list[tuple[int, int]]


class RaiseLeaderEpoch(PartitionMessage, frozen=True, array_like=True, tag=True):
    """`used` is a leader epoch that was used before: one above it is needed. Answer: Ack.

    At once, before the controller has answered: a higher epoch comes as another `Assign`. Not taken
    where it is known to be in vain, with the reason. May be repeated.
    """

    used: int


class ImageAtLeast(Message, frozen=True, array_like=True, tag=True):
    """The image at or past a high watermark confirmed after this question. Answer: Image."""


class Image(Message, frozen=True, array_like=True, tag=True):
    """What the committed metadata log says of topics.

    Attributes:
        topic_ids: of the topics that exist.
        metadata_offset: the last offset (inclusive) that this is made of.
        removed_topic_ids: of tiered topics whose removal was read in the log, or in a snapshot's
            list of them, and that may have something left in the remote store.
        removals_are_listed: the active controller keeps a list of such ids; one of Apache Kafka
            does not.
    """

    topic_ids: list[bytes]
    metadata_offset: int
    cluster_id: str
    removed_topic_ids: list[bytes] = []
    removals_are_listed: bool = True


class TopicsEmptied(Message, frozen=True, array_like=True, tag=True):
    """Nothing is left of these removed topics: they leave the list. Answer: Ack once committed."""

    topic_ids: list[bytes]


class PartitionHealth(msgspec.Struct, frozen=True, array_like=True):
    """A partition that does not do what it should, and why; -1: the whole tier."""

    topic_id: bytes
    partition: int
    reason: HealthText


class Health(Message, frozen=True, array_like=True, tag=True):
    """One-way: state of the tier; the lists are empty when all is well.

    Attributes:
        ready: so many assigned partitions the metadata manager answers for.
        abandoned_calls: plugin calls past their deadline that still hold a thread.
        yellow: what a person should look at, of the whole tier.
        totals: what was counted since the tier's start over all topics, see `totals` of
            `Telemetry` and `Deletions`.
    """

    assigned: int
    ready: int
    abandoned_calls: int
    unhealthy: list[PartitionHealth]
    yellow: list[HealthText] = []
    totals: dict[str, float] = {}


AnyMessage: TypeAlias = (
    Ack
    | Failure
    | Configure
    | Configured
    | Connect
    | Reconfigure
    | Assign
    | Unassign
    | Read
    | OffsetForTimestamp
    | AuxiliaryState
    | ImageChanged
    | Released
    | Heartbeat
    | DescribeMetrics
    | ControlMessage
    | Stop
    | MetricsPiece
    | ReadAnswer
    | TimestampAnswer
    | AuxiliaryStateAnswer
    | DescribeLog
    | LogDescription
    | OpenSegment
    | OpenedSegment
    | CopiedThrough
    | LossFound
    | ValidationWithdrawn
    | RaiseLogStart
    | RestoreChain
    | RaiseLeaderEpoch
    | ImageAtLeast
    | Image
    | TopicsEmptied
    | Health
)


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way.

    Attributes:
        kind: 0 request, 1 answer, 2 one-way.
        id: of the request; an answer repeats it. Each side counts its own requests.
        descriptors: how many descriptors travel beside it.
    """

    kind: int
    id: int
    descriptors: int
    body: AnyMessage


REQUEST, ANSWER, ONE_WAY = 0, 1, 2
