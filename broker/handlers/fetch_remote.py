"""The part of a fetch whose offsets are only in the remote tier."""

import asyncio
from typing import Protocol

from broker.handlers import fetch_versions as since
from broker.handlers.errors_out import code_of
from broker.handlers.fetch_read import ASKED_THE_WRONG_LEADER, refuse_zstd
from broker.remote.reads import RemoteFetched, RemoteRead
from broker.replica.fetch_types import FetchParams, PartitionRead, RemoteReadNeeded
from kafka_protocol.errors import ErrorCode, KafkaError


class RemoteReader(Protocol):
    """The remote tier's interface for fetches."""

    def read(self, read: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        """Read from the remote tier; the future fails with a KafkaError for the client."""
        ...


def start_remote(
    remote: RemoteReader | None,
    params: FetchParams,
    read: PartitionRead,
    wanted: RemoteReadNeeded,
    deadline_ms: int,
) -> "asyncio.Future[RemoteFetched] | None":
    """Begin to read a partition from the remote tier; None: there is no read to wait for."""
    partition = read.partition
    assert partition is not None
    if remote is None:
        read.error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        return None
    if wanted.max_bytes <= 0 and not wanted.min_one_batch:
        return None  # no budget left; the next fetch begins with this partition
    return remote.read(
        RemoteRead(
            topic_id=partition.topic_id,
            topic=partition.topic,
            partition=partition.partition,
            offset=read.fetch.offset,
            max_bytes=wanted.max_bytes,
            min_one_batch=wanted.min_one_batch,
            read_committed=params.read_committed,
            deadline_ms=deadline_ms,
            holder=f"{params.listener} {params.peer[0]}:{params.peer[1]}",
            may_ask_followers=params.may_ask_followers,
        )
    )


def take_remote(
    params: FetchParams, read: PartitionRead, future: "asyncio.Future[RemoteFetched]"
) -> None:
    """Copy the result or the error of a remote read into `read`."""
    partition = read.partition
    assert partition is not None
    try:
        fetched = future.result()
        if params.version < since.ZSTD:
            refuse_zstd(partition, fetched.regions)
    except KafkaError as error:
        read.error = int(error.code)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - this partition's answer
        read.error = int(code_of(error, "remote fetch"))
    else:
        read.regions, read.size_bytes = fetched.regions, fetched.size_bytes
        if params.read_committed:
            read.aborted = fetched.aborted_transactions
    if read.error:
        partition.counters.failed_fetch.value += 1
        if read.error in ASKED_THE_WRONG_LEADER:
            read.leader = (partition.leader_id, partition.leader_epoch)
        read.high_watermark = read.last_stable_offset = read.log_start_offset = -1
