"""The messages between a broker and its tier process: the ports of this package, as data.

Every message about a partition has its topic id, partition and leader epoch. The receiver drops an
answer for another id or an older epoch. Offsets: `end` is exclusive, `last` is inclusive. File
descriptors travel beside a message (SCM_RIGHTS), in the order of its fields.

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

    Answer: Ack once each ready partition has ended a copy pass and an expiration pass that began
    after this message arrived.
    """


class SetStoreFaults(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Replace the faults of the store by these. Answer: Ack, not taken if the store has no wrapper.

    `count` of a fault that hits a limited number of times is the number that is left.
    """

    faults: list[StoreFault]


class StoreFaultHit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One-way: a fault of the store is about to hit a call."""

    fault_id: int
    call: StoreCall
    topic: str


ControlMessage: TypeAlias = RunPasses | SetStoreFaults | StoreFaultHit


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker accepts connections. Answer: Ack once the metadata manager took its settings.

    Attributes:
        client_settings: Settings of the manager's Kafka clients for these connections, by
            librdkafka's names. They include the token by which the broker authenticates them.
    """

    client_settings: dict[str, str] = {}

    def __repr__(self) -> str:
        """Without the values, which include secrets."""
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
    """Done. `taken` is False where the receiver refuses the request; `reason` may say why."""

    taken: bool = True
    reason: str = ""


class Failure(Message, frozen=True, array_like=True, tag=True):
    """The request could not be answered. `code` is Kafka's error code, -1 if it has none."""

    code: int
    message: str


# ---------------------------------------------------------------- broker to tier
class Configure(Message, frozen=True, array_like=True, tag=True):
    """First message, with all settings.

    Answer: Configured once the storage plugin accepted its own.

    The metadata manager's settings are checked as far as that is possible without its topic.
    """

    config: TierConfig


class Configured(Message, frozen=True, array_like=True, tag=True):
    """The storage plugin accepted its settings.

    Attributes:
        public_settings: Names (prefix removed) of the settings that are not secret.
        store: Identity of its store.
    """

    public_settings: list[str]
    store: StoreIdentity


class Reconfigure(Message, frozen=True, array_like=True, tag=True):
    """Settings that change at run time changed: pool sizes and quotas. Answer: Ack."""

    config: TierConfig


class PartitionSettings(msgspec.Struct, frozen=True, array_like=True):
    """The part of a topic's configuration that its tier needs. -1: no limit.

    Attributes:
        mode: "active", "read_only" (remote.log.copy.disable: no new copies, total retention
            continues) or "drop" (tiering was switched off, and the remote data is to be deleted).
        copy_lag_ms, copy_lag_bytes: A closed segment is copied after this time, or once this many
            newer bytes exist; 0 ms: at once.
    """

    mode: str = "active"
    retention_ms: int = -1
    retention_bytes: int = -1
    copy_lag_ms: int = 0
    copy_lag_bytes: int = -1


class Assign(PartitionMessage, frozen=True, array_like=True, tag=True):
    """This broker hosts the partition; sent again when role, epoch or settings change. Answer: Ack.

    Attributes:
        metadata_offset: Offset of the image in which the topic was seen, -1 if unknown.
        unclean_epoch: Leader epoch of the unclean election that the partition has not recovered
            from, -1 if there is none. Records of earlier lineages prove nothing any more.
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
        offset_epoch: Epoch of `offset` on the leader's epoch chain.
        epoch_end: First offset that is not of that epoch (exclusive end).
        max_bytes: Bound of the answer; `min_one_batch` lets one larger batch through.
        read_committed: Aborted transactions are wanted with the batches.
        chain: (epoch, start offset) from that epoch on, if wanted: only this lineage is read.
        wait_ms: Longest wait of the caller; the answer comes by then, with data or without.
        holder: The connection that gets the data. Its leases count against it until they are sent.
        read_ahead_bytes: The answer may exceed `max_bytes` by this, for the reader's next requests.
        at_follower: This broker follows the partition. The tier first reads the metadata topic to
            its present end, since other owners write it. Error REPLICA_NOT_AVAILABLE where it
            cannot.
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

    The segment ends on the leader's epoch chain, which continues with the epochs `above`, as
    (epoch, start). Answer: AuxiliaryStateAnswer. Sent by a follower that starts above the log start
    offset. After `wait_ms` the follower drops the answer.
    """

    offset: int
    epoch: int
    above: list[tuple[int, int]] = []
    wait_ms: int = 0


class ImageChanged(Message, frozen=True, array_like=True, tag=True):
    """One-way: topics were deleted, or the led metadata partitions changed."""

    led_metadata_partitions: list[int]


class Released(Message, frozen=True, array_like=True, tag=True):
    """One-way: the broker closed the descriptors that it leased under these tokens."""

    tokens: list[int]


class Heartbeat(Message, frozen=True, array_like=True, tag=True):
    """Ask whether the tier is alive. Answer: Ack, from the thread that owns the tier's state."""


class DescribeMetrics(Message, frozen=True, array_like=True, tag=True):
    """Next piece of a page of the tier's metrics. Answer: MetricsPiece.

    `page` is a number chosen by the caller; a new number begins a new page.
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
    """A byte range of the descriptor with index `descriptor`; `token` is for `Released`."""

    descriptor: int
    token: int
    position: int
    size_bytes: int


class ReadAnswer(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Whole batches, or an error code (0: none; no regions and no error: nothing came in time).

    Attributes:
        next_offset: First offset after the last batch (exclusive end); -1 without regions.
        aborted: (producer id, first offset) of the transactions aborted within the regions.
        batch_ends, last_offsets: Set where the regions exceed the request
            (`Read.read_ahead_bytes`), for each batch in them. The end (exclusive) in bytes over all
            regions, and the last offset (inclusive). Native int64s.
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
    """Describe the present local log. Answer: LogDescription.

    Closed segments wholly below `closed_from` are left out: they were copied, or are not needed.
    """

    closed_from: int = 0


CLOSED_SEGMENTS_MAX = 500
"""Closed segments in one description: about a millisecond of the broker's loop."""


class ClosedLocalSegment(msgspec.Struct, frozen=True, array_like=True):
    """A local segment that is no longer written. `last_offset` is inclusive."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class LogDescription(PartitionMessage, frozen=True, array_like=True, tag=True):
    """The leader's local log at one moment.

    Attributes:
        log_start_known: False if the checkpoint that held the log start offset was lost.
        log_start_has_no_entry: The log start offset is not known, and the checkpoint file is
            intact: it never had an entry.
        log_end_offset: First offset not written (exclusive).
        chain: (epoch, start offset) from the log start offset on, ascending. From the local start
            on the local batches confirm it.
        chain_problem: Why the chain below the local start is unknown; "" if it is known.
        closed_segments: Ascending by base offset, without the active segment. The first ones that
            reach up to `closed_from` or above it.
        closed_from: The value of the request.
        closed_bytes_below: Bytes of the closed segments before them.
        more_closed_count, more_closed_bytes: Closed segments after them.
        unvalidated_end: Log end when the log was last validated as sound, or was opened. Records
            above it were appended since. -1: the log is sound up to its end.
        adopted_epoch: An operator adopted the log as it was. Offsets that owners up to this leader
            epoch assigned count in two cases: above the log end, or in a finished segment. -1: not
            adopted.
        local_bytes: All local segments, the active one included.
        metadata_offset: Offset of the image in which the topic was seen.
        members_log_start: The other in-sync replicas have checkpointed a log start offset of at
            least this. So the next leader has it too. -1: not known.
        members_highest_log_start: The highest log start offset that one of them has checkpointed;
            -1: none.
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
    """The files beside it: log, offset, time index, producer snapshot, transaction index if any.

    All are checked and fsynced.
    """

    base_offset: int
    size_bytes: int
    transaction_index_is_there: bool
    transaction_index_is_empty: bool
    leader_epoch_index: bytes


class Loss(StrEnum):
    """The loss that makes an owner unhealthy. Meanwhile nothing is copied, raised or deleted."""

    LEADER_EPOCH = "leader epoch too low"
    LOG_END = "log end lost"
    CHAIN = "chain lost"
    LOG_START = "log start unknown"
    HOLE = "hole"


class CopiedThrough(PartitionMessage, frozen=True, array_like=True, tag=True):
    """The log is sound; how far durable copies reach without a gap from the log start offset on.

    Answer: Ack.

    Attributes:
        last_offset: Last offset of that run (inclusive), -1 if it is empty.
        last_offset_epoch: Its epoch on the epoch chain that the tier validated, -1 if it is empty.
        remote_start: First remote offset on the epoch chain, -1 if none.
        remote_bytes: Bytes of the finished segments on the epoch chain.
    """

    last_offset: int
    last_offset_epoch: int
    remote_start: int
    remote_bytes: int


class Restoration(msgspec.Struct, frozen=True, array_like=True):
    """Where a log begins again that has lost all local records, while remote ones are left.

    Attributes:
        begin: The end (exclusive) of the newest finished segment.
        epoch_below: Leader epoch of the offset before it.
        end: Offsets below it (exclusive) were assigned, as far as accepted records prove.
        given_epoch: The highest leader epoch under which they may have been assigned.
    """

    begin: int
    epoch_below: int
    end: int
    given_epoch: int


class LossFound(PartitionMessage, frozen=True, array_like=True, tag=True):
    """The log is validated and not sound. The owner is unhealthy, nothing counts as copied.

    Answer: Ack.

    Attributes:
        restoration: For a lost log end where no local record is left; else None.
    """

    loss: Loss
    restoration: Restoration | None = None


class ValidationWithdrawn(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Earlier reports are withdrawn: nothing counts as copied. Answer: Ack.

    A loss that was found stays until a later validation ends it.
    """


Report: TypeAlias = CopiedThrough | LossFound | ValidationWithdrawn
"""Result of a validation, from the owner; without a report the log is not validated."""


class RaiseLogStart(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Move the log start offset.

    Answer: Ack once all in-sync replicas have it checkpointed and fsynced.

    Failure 7 (REQUEST_TIMED_OUT) if a replica does not confirm that in time; the leader has moved
    it by then.

    `reason` is "time", "size", "drop", "carried" or "rebuilt". With "carried" records have a higher
    log start than this log had. With "rebuilt" the checkpoint was lost, and the offset may be below
    the one that the broker used.
    """

    offset: int
    reason: str


class RestoreChain(PartitionMessage, frozen=True, array_like=True, tag=True):
    """Use this epoch chain, which was read from the store. Answer: Ack once it is fsynced.

    Not taken if it contradicts a local batch. `entries` holds (epoch, start offset), ascending,
    from the log start offset on.
    """

    entries: list[tuple[int, int]]


class RaiseLeaderEpoch(PartitionMessage, frozen=True, array_like=True, tag=True):
    """A leader epoch above `used` is needed, which was used before. Answer: Ack.

    The Ack comes at once, before the controller has answered; a higher epoch arrives as another
    `Assign`. Not taken, with the reason, where the controller cannot give one. May be repeated.
    """

    used: int


class ImageAtLeast(Message, frozen=True, array_like=True, tag=True):
    """The image at or past a high watermark confirmed after this request. Answer: Image."""


class Image(Message, frozen=True, array_like=True, tag=True):
    """The topics in the committed metadata log.

    Attributes:
        topic_ids: Ids of the topics that exist.
        metadata_offset: The last offset (inclusive) that the image includes.
        removed_topic_ids: Ids of tiered topics whose removal was read in the log, or in a
            snapshot's list, and that may have remote data left.
        removals_are_listed: The active controller keeps a list of such ids; one of Apache Kafka
            does not.
    """

    topic_ids: list[bytes]
    metadata_offset: int
    cluster_id: str
    removed_topic_ids: list[bytes] = []
    removals_are_listed: bool = True


class TopicsEmptied(Message, frozen=True, array_like=True, tag=True):
    """Nothing is left of these removed topics; they leave the list. Answer: Ack once committed."""

    topic_ids: list[bytes]


class PartitionHealth(msgspec.Struct, frozen=True, array_like=True):
    """A partition with a health reason; partition -1: the whole tier."""

    topic_id: bytes
    partition: int
    reason: HealthText


class Health(Message, frozen=True, array_like=True, tag=True):
    """One-way: state of the tier; the lists are empty when the tier is healthy.

    Attributes:
        ready: Number of assigned partitions whose metadata is caught up.
        abandoned_calls: Plugin calls past their deadline that still hold a thread.
        yellow: Health reasons of the whole tier that need attention later.
        totals: Counters over all topics since the tier's start (`totals` of `Telemetry` and
            `Deletions`).
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
    """A message as it is sent.

    Attributes:
        kind: 0 request, 1 answer, 2 one-way.
        id: Of the request; an answer repeats it. Each side counts its own requests.
        descriptors: How many descriptors travel beside it.
    """

    kind: int
    id: int
    descriptors: int
    body: AnyMessage


REQUEST, ANSWER, ONE_WAY = 0, 1, 2
