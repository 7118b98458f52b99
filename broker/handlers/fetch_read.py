"""Reads the partitions of a fetch, in their order, within one byte budget.

"At least one batch" holds once per answer: the first partition with data sends its first batch even
above every limit. Otherwise a consumer could never get past a large batch. A partition whose offset
is only in the remote tier is listed for a later read. It takes its share of the budget now, so that
several remote partitions together cannot exceed it.

The checksums of batches of a durable topic are verified before they are sent, on the event loop. So
an answer has little of such topics, and the reader fetches again for more.
"""

from collections.abc import Sequence
from functools import partial

from broker.handlers import fetch_versions as since
from broker.handlers.errors_out import code_of
from broker.replica.errors import (
    NotLeaderOrFollower,
    NotValidated,
    ReplicaNotAvailable,
    UnknownLeaderEpoch,
)
from broker.replica.fetch_types import (
    ColdRead,
    FetchParams,
    FetchPartition,
    FetchPass,
    PartitionRead,
    RemoteReadNeeded,
)
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.records.batch import HEADER_SIZE, Codec, read_header
from kafka_protocol.types import TopicPartition
from local_log.errors import OffsetIsRemote, OffsetOutOfRange, UnsupportedCompression, WouldWait
from local_log.log.results import LogRead
from runtime.disk import FileRegion
from runtime.work import Steps

SLICE_PARTITIONS = 500
"""Partitions read in one slice."""

REMOTE_SHARE_BYTES = 1024 * 1024
"""Least share of the budget that a remote partition may take, if that much is left."""

CHECKED_PARTITION_BYTES = 256 * 1024
"""Bytes of a durable topic's partition verified for one answer; one batch may be larger."""

CHECKED_ANSWER_BYTES = 1024 * 1024
"""Bytes that are verified for one answer; the last batch may exceed it."""

ASKED_THE_WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors with which the answer names the leader (KIP-951)."""


def read_in_slices(
    replicas: ReplicaManager,
    params: FetchParams,
    partitions: Sequence[FetchPartition],
    result: FetchPass,
    *,
    slice_partitions: int = SLICE_PARTITIONS,
) -> Steps[None]:
    """Fill `result`; yields between slices of partitions so that the caller may pause."""
    left = params.max_bytes
    min_one_batch = True
    for count, fetch in enumerate(partitions):
        if count and count % slice_partitions == 0:
            yield
        read = PartitionRead(fetch)
        result.reads.append(read)
        max_bytes = min(fetch.max_bytes, left)
        try:
            _read(replicas, params, read, max_bytes, result, min_one_batch=min_one_batch)
        except OffsetIsRemote as remote:
            if params.replica_id >= 0:
                read.error = int(remote.code)
                result.must_answer = True
                continue
            # The size of a remote read is unknown yet, so other partitions keep a share of the
            # budget.
            share = max(left // (len(partitions) - count), min(left, REMOTE_SHARE_BYTES))
            max_bytes = min(max_bytes, share)
            result.remote.append(RemoteReadNeeded(count, max_bytes, min_one_batch))
            left = max(0, left - max_bytes)
            min_one_batch = False
        except WouldWait:
            assert read.partition is not None
            result.cold.append(
                ColdRead(read.partition, fetch.offset, max_bytes, _end_for(params, read))
            )
        except Exception as error:  # noqa: BLE001 - becomes this partition's answer
            read.error = int(code_of(error, "fetch"))
            if not isinstance(error, NotValidated):  # log validation wakes the parked fetch
                result.must_answer = True
            if read.error in ASKED_THE_WRONG_LEADER:
                read.leader = replicas.leader(TopicPartition(fetch.topic, fetch.index))
            if read.partition is None:
                read.aborted = []  # as in Kafka: not null where the partition is unknown
            else:
                read.partition.counters.failed_fetch.value += 1
        if read.size_bytes:
            result.size_bytes += read.size_bytes
            left = max(0, left - read.size_bytes)
            min_one_batch = False
        if read.diverging is not None:
            result.must_answer = True


def _read(
    replicas: ReplicaManager,
    params: FetchParams,
    read: PartitionRead,
    max_bytes: int,
    result: FetchPass,
    *,
    min_one_batch: bool,
) -> None:
    fetch = read.fetch
    partition = replicas.partitions.get(TopicPartition(fetch.topic, fetch.index))
    if partition is None or (fetch.topic_id is not None and partition.topic_id != fetch.topic_id):
        partition = _find(replicas, fetch)
    read.partition = partition
    if partition.log.is_offline:  # also for offsets in the tier
        replicas.require(partition.topic, fetch.index)
    partition.counters.fetch_requests.value += 1
    _admit(replicas, partition, params, read, max_bytes)
    log = partition.log
    stable = log.last_stable_offset
    read.high_watermark, read.last_stable_offset = log.high_watermark, stable
    # -1 where it is unknown, so that a follower does not adopt a wrong log start.
    read.log_start_offset = log.log_start_offset if log.log_start_known else -1
    if read.nearer is not None:
        result.must_answer = True
        return
    if params.read_committed:
        read.aborted = []
    if read.diverging is not None:
        return
    end = _end_for(params, read)
    if fetch.offset >= log.log_end_offset:
        partition.check_log_end()
    read.at_end = fetch.offset >= end
    if read.at_end or (max_bytes == 0 and not min_one_batch):
        return
    read_batches = partial(_read_checked, result) if partition.durable else Partition.read
    found = read_batches(
        partition,
        fetch.offset,
        max_bytes,
        end_offset=end,
        min_one_batch=min_one_batch,
        may_wait=result.may_wait,
    )
    if params.version < since.ZSTD:
        refuse_zstd(partition, found.regions)
    read.regions, read.size_bytes = found.regions, found.size_bytes
    if params.read_committed and found.size_bytes:
        read.aborted = log.aborted_transactions(
            fetch.offset, found.upper_bound_offset, may_wait=result.may_wait
        )


def _admit(
    replicas: ReplicaManager,
    partition: Partition,
    params: FetchParams,
    read: PartitionRead,
    max_bytes: int,
) -> None:
    """Refuse requests that this replica may not serve; record a follower's fetch offset."""
    fetch = read.fetch
    if not partition.is_leader and params.may_ask_followers:
        partition.check_epoch(fetch.current_leader_epoch)
        _check_follower(partition, params, read)
        _check_size(max_bytes)
        return
    if not partition.is_leader or fetch.current_leader_epoch >= 0:
        partition.check_leader(fetch.current_leader_epoch)
    if params.replica_id < 0:
        if params.near and partition.followers is not None:
            read.nearer = partition.followers.nearest(params.near, fetch.offset, params.peer)
        if read.nearer is None:
            _check_range(partition, read, max_bytes)
        return
    _check_replica(replicas, partition, params, fetch)
    _check_range(partition, read, max_bytes)
    # An offset in a diverging log, or of another leader epoch, is no progress in this log.
    is_ours = read.diverging is None and fetch.current_leader_epoch == partition.leader_epoch
    if is_ours and partition.followers is not None:
        partition.followers.fetched(
            params.replica_id,
            broker_epoch=params.broker_epoch,
            offset=fetch.offset,
            log_start_offset=fetch.log_start_offset,
        )


def _read_checked(
    result: FetchPass,
    partition: Partition,
    offset: int,
    max_bytes: int,
    *,
    end_offset: int,
    min_one_batch: bool,
    may_wait: bool,
) -> LogRead:
    """Like `Partition.read`, with the bounds on verified bytes.

    A batch larger than these bounds is sent if the client's limits allow it. Otherwise a partition
    that is never first in a request would make no progress.
    """
    bound = min(CHECKED_PARTITION_BYTES, CHECKED_ANSWER_BYTES - result.checked_bytes)
    nothing = LogRead([], 0, -1, offset)
    if bound <= 0 and not min_one_batch:
        return nothing
    is_bound = bound < max_bytes
    found = partition.read(
        offset,
        min(max_bytes, bound),
        end_offset=end_offset,
        min_one_batch=min_one_batch or is_bound,
        may_wait=may_wait,
    )
    result.checked_bytes += found.size_bytes
    if found.size_bytes > max_bytes and not min_one_batch:
        return nothing
    if is_bound and found.size_bytes > bound // 2:
        result.must_answer = True  # else a parked fetch would wait although bytes are there
    return found


def _check_range(partition: Partition, read: PartitionRead, max_bytes: int) -> None:
    """Refuse offsets outside this log; a replica with another epoch gets its diverging epoch."""
    log, fetch = partition.log, read.fetch
    if fetch.last_fetched_epoch >= 0:
        read.diverging = _diverging(partition, fetch)
        if read.diverging is not None:
            return
    if not log.log_start_offset <= fetch.offset <= log.log_end_offset:
        if fetch.offset < log.log_start_offset:
            partition.check_log_start_known()
        else:
            partition.check_sound()
        raise OffsetOutOfRange(
            asked=fetch.offset, start=log.log_start_offset, end=log.log_end_offset
        )
    _check_size(max_bytes)


def _check_size(max_bytes: int) -> None:
    if max_bytes < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a negative size cannot be fetched")


def _check_follower(partition: Partition, params: FetchParams, read: PartitionRead) -> None:
    """Refuse a fetch that this follower cannot answer reliably, or set the diverging epoch.

    Up to its log end, a follower has its leader's epochs. DIFFERS: an epoch above those may end at
    any offset, so it is refused; Kafka answers OFFSET_OUT_OF_RANGE.
    """
    fetch, log = read.fetch, partition.log
    partition.check_follower(fetch.offset, read_committed=params.read_committed)
    epoch = fetch.last_fetched_epoch
    if epoch < 0:
        return
    end = log.epochs.end_offset_for(epoch, log.log_end_offset)
    if end is None or partition.is_chain_lost:
        raise ReplicaNotAvailable(
            f"this follower of {partition.topic_partition} does not know where leader epoch "
            f"{epoch} ended: ask its leader {partition.leader_id}"
        )
    if end.epoch < epoch or end.end_offset < fetch.offset:
        read.diverging = (end.epoch, end.end_offset)


def _find(replicas: ReplicaManager, fetch: FetchPartition) -> Partition:
    """Find the partition by the client's topic name or id, or raise the reason why it is missing.

    The name cached with an id may be outdated: the topic was created after the session began, or
    was deleted since and its name reused.
    """
    if fetch.topic_id is None:
        return replicas.require(fetch.topic, fetch.index)
    partition = replicas.require_id(fetch.topic_id, fetch.index)
    fetch.topic = partition.topic
    return partition


def refuse_zstd(partition: Partition, regions: Sequence[FileRegion | memoryview]) -> None:
    """Refuse to send zstd to a client whose Fetch version has no zstd.

    Raises:
        UnsupportedCompression: There is a zstd batch in the regions.
    """
    disk = partition.log.disk
    for region in regions:
        if isinstance(region, memoryview):
            position, end = 0, len(region)
        else:
            position, end = region.position, region.position + region.size_bytes
        while position + HEADER_SIZE <= end:
            if isinstance(region, memoryview):
                header = read_header(region, position)
            else:
                header = read_header(disk.read_at(region.file, position, HEADER_SIZE))
            if header.codec == Codec.ZSTD:
                raise UnsupportedCompression(Codec.ZSTD)
            position += header.size_bytes


def _end_for(params: FetchParams, read: PartitionRead) -> int:
    """First offset that the reader may not see (exclusive end); a replica sees the whole log."""
    if params.replica_id >= 0 and read.partition is not None:
        return read.partition.log.log_end_offset
    return read.last_stable_offset if params.read_committed else read.high_watermark


def _check_replica(
    replicas: ReplicaManager, partition: Partition, params: FetchParams, fetch: FetchPartition
) -> None:
    """Refuse a broker that has no replica, or whose incarnation has ended.

    A refusal is logged, with a limited rate.
    """
    replica_id, followers = params.replica_id, partition.followers
    if replica_id not in partition.replicas or replica_id == partition.node_id:
        error = UnknownLeaderEpoch if fetch.current_leader_epoch >= 0 else NotLeaderOrFollower
        reason = "holds no replica"
    elif followers is not None and followers.is_of_ended_incarnation(
        replica_id, params.broker_epoch
    ):
        error, reason = (
            NotLeaderOrFollower,
            f"has a later incarnation than epoch {params.broker_epoch}",
        )
    else:
        return
    reason = f"broker {replica_id} fetches {partition.topic_partition}, and {reason}"
    replicas.fetch_refused(replica_id, reason)
    raise error(reason)


def _diverging(partition: Partition, fetch: FetchPartition) -> tuple[int, int] | None:
    """The epoch and end offset where the reader's log diverges; None while they agree (KIP-595)."""
    end = partition.log.epochs.end_offset_for(
        fetch.last_fetched_epoch, partition.log.log_end_offset
    )
    if end is not None and (
        end.epoch >= fetch.last_fetched_epoch and end.end_offset >= fetch.offset
    ):
        return None
    partition.check_sound()
    if end is None:
        raise OffsetOutOfRange(
            asked=fetch.offset,
            start=partition.log.log_start_offset,
            end=partition.log.log_end_offset,
        )
    return (end.epoch, end.end_offset)
