"""Fetch (1): read whole batches, from local files or from the remote tier.

Answered at once if there are enough bytes, an error, or no will to wait; else parked until an
append brings what is missing. Partitions whose offset is only in the remote tier are read side by
side, and the answer waits for them, but what else is in it is not held back longer than the client
itself would wait, or a moment.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from broker.cluster import BrokerAddress
from broker.handlers.errors_out import code_of
from broker.handlers.fetch_codec import (
    encode_answer,
    encode_endpoints,
    encode_in_slices,
    has_leader_hint,
)
from broker.handlers.fetch_read import (
    FIRST_VERSION_WITH_ZSTD,
    SLICE_PARTITIONS,
    read_in_slices,
    refuse_zstd,
)
from broker.handlers.registry import Handler, RequestContext
from broker.purgatory.delayed_fetch import DelayedFetch
from broker.remote.reads import RemoteFetched, RemoteRead
from broker.replica.fetch_session import FetchContext, FetchSessionCache, forgotten_keys
from broker.replica.fetch_types import (
    FetchParams,
    FetchPartition,
    FetchPass,
    PartitionRead,
    RemoteWanted,
)
from broker.replica.manager import ReplicaManager
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from runtime.clock import Clock
from runtime.dice import Dice
from runtime.scheduler import Scheduler

READ_COMMITTED: Final = 1
_FIRST_VERSION_WITH_IDS: Final = 13
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_REMOTE_SLACK_MS: Final = 250
"""The tier answers by its deadline; this much later we go on without it."""
_REMOTE_WAIT_MIN_MS: Final = 50
"""Also a client that does not wait gives the tier so long to hand over what it has at hand: local
data or errors in each answer would keep remote partitions from it for good."""

_decode = request(ApiKey.FETCH).decode


Addresses = Callable[[str], Iterable[BrokerAddress]]
"""The brokers as clients of a listener reach them."""


class RemoteReader(Protocol):
    """What a fetch needs of the remote tier."""

    def read(self, read: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        """Read from the remote tier; fails with a KafkaError for the client."""
        ...


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Settings of the fetch path.

    Attributes:
        max_bytes: of one answer (`fetch.max.bytes`).
        session_slots: `max.incremental.fetch.session.cache.slots`.
        remote_wait_ms: longest wait for the remote tier now (`remote.fetch.max.wait.ms`).
    """

    max_bytes: int = 57_671_680
    session_slots: int = 1_000
    remote_wait_ms: Callable[[], int] = lambda: 500


class FetchHandler:
    """Serves Fetch 4-18."""

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        limits: FetchLimits,
        clock: Clock,
        scheduler: Scheduler,
        dice: Dice,
        remote: RemoteReader | None,
        addresses: Addresses,
    ) -> None:
        """Read the partitions of `replicas`; `remote` is None where there is no remote tier."""
        self._replicas, self._limits, self._addresses = replicas, limits, addresses
        self._clock, self._scheduler, self._remote = clock, scheduler, remote
        self.sessions = FetchSessionCache(slots_max=limits.session_slots, dice=dice)

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        """Serve one request; see `RawFn`."""
        version = context.api_version
        asked, _ = _decode(frame, version, offset)
        with_ids = version >= _FIRST_VERSION_WITH_IDS
        try:
            session = self.sessions.begin(
                session_id=asked.session_id,
                session_epoch=asked.session_epoch,
                asked=self._asked_partitions(asked, with_ids=with_ids),
                forgotten=forgotten_keys(asked, with_ids=with_ids),
                with_ids=with_ids,
                now_ms=self._clock.monotonic_ms(),
            )
        except ApiError as error:
            return encode_answer(version, int(error.code), 0, ())
        params = self._params(context, asked)
        if len(session.partitions) > SLICE_PARTITIONS:
            return self._fetch_in_slices(params, session)
        result = FetchPass()
        for _ in read_in_slices(self._replicas, params, session.partitions, result):
            pass
        if result.remote:
            return self._with_remote(params, session, result)
        if self._missing_bytes(params, session, result) <= 0:
            return self._answer(params, session, result)
        return self._park(params, session, result)

    # -- the request

    def _params(self, context: RequestContext, asked: Any) -> FetchParams:
        version = context.api_version
        max_bytes = min(asked.max_bytes, self._limits.max_bytes)
        if version >= _FIRST_VERSION_WITH_REPLICA_STATE:
            replica_id = asked.replica_state.replica_id
        else:
            replica_id = asked.replica_id
        return FetchParams(
            version,
            replica_id,
            asked.max_wait_ms,
            min(asked.min_bytes, max_bytes),
            max_bytes,
            asked.isolation_level == READ_COMMITTED,
            context.listener_name,
        )

    def _asked_partitions(self, asked: Any, *, with_ids: bool) -> list[FetchPartition]:
        partitions = []
        for topic in asked.topics:
            topic_id: bytes | None = None
            if with_ids:
                key: str | bytes = topic.topic_id
                topic_id, name = topic.topic_id, self._replicas.topic_names.get(topic.topic_id, "")
            else:
                key = name = topic.topic
            for p in topic.partitions:
                partitions.append(
                    FetchPartition(
                        (key, p.partition),
                        name,
                        topic_id,
                        p.partition,
                        p.fetch_offset,
                        p.partition_max_bytes,
                        p.current_leader_epoch,
                        p.last_fetched_epoch,
                    )
                )
        return partitions

    # -- the answer

    def _missing_bytes(self, params: FetchParams, session: FetchContext, result: FetchPass) -> int:
        """How many bytes must still come before the answer is due; 0 or less: answer now."""
        if params.max_wait_ms <= 0 or result.must_answer or not session.partitions:
            return 0
        return params.min_bytes - result.size_bytes

    def _chosen(self, session: FetchContext, result: FetchPass) -> Sequence[PartitionRead]:
        for read in result.reads:
            if read.size_bytes and read.partition is not None:
                read.partition.counters.bytes_out.value += read.size_bytes
        return session.to_answer(result.reads)

    def _answer(
        self, params: FetchParams, session: FetchContext, result: FetchPass
    ) -> list[object]:
        chosen = self._chosen(session, result)
        endpoints = self._endpoints(params, chosen)
        return encode_answer(params.version, 0, session.session_id, chosen, endpoints)

    def _endpoints(self, params: FetchParams, chosen: Sequence[PartitionRead]) -> bytes:
        """Where the leaders are of which the answer tells; a replica knows it by itself."""
        if params.replica_id >= 0:
            return b""
        leaders = {
            read.partition.leader_id
            for read in chosen
            if read.error and has_leader_hint(params.version, read) and read.partition is not None
        }
        if not leaders:
            return b""
        return encode_endpoints(
            one for one in self._addresses(params.listener) if one.id in leaders
        )

    async def _fetch_in_slices(self, params: FetchParams, session: FetchContext) -> Any:
        """Serve very many partitions without holding the loop."""
        result = FetchPass()
        for _ in read_in_slices(self._replicas, params, session.partitions, result):
            await asyncio.sleep(0)
        if result.remote:
            answer = self._with_remote(params, session, result)
            return answer if isinstance(answer, list) else await answer
        if self._missing_bytes(params, session, result) > 0:
            return await self._park(params, session, result)
        chosen = self._chosen(session, result)
        parts: list[object] = []
        for _ in encode_in_slices(
            params.version,
            0,
            session.session_id,
            chosen,
            parts,
            self._endpoints(params, chosen),
        ):
            await asyncio.sleep(0)
        return parts

    def _park(
        self, params: FetchParams, session: FetchContext, first: FetchPass
    ) -> "asyncio.Future[list[object]]":
        """Wait for bytes on every partition of the fetch."""
        future: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

        def attempt(last: bool) -> int | None:
            result = FetchPass()
            for _ in read_in_slices(self._replicas, params, session.partitions, result):
                pass
            missing = self._missing_bytes(params, session, result)
            # An offset that went remote while it was parked is served by the client's next fetch.
            if missing > 0 and not last and not result.remote:
                return missing
            if not future.done():
                future.set_result(self._answer(params, session, result))
            return None

        delayed = DelayedFetch(
            partitions=[read.partition for read in first.reads if read.partition is not None],
            missing_bytes=params.min_bytes - first.size_bytes,
            wait_ms=params.max_wait_ms,
            attempt=attempt,
            scheduler=self._scheduler,
        )
        future.add_done_callback(lambda _: delayed.finish())
        return future

    # -- remote partitions

    def _with_remote(
        self, params: FetchParams, session: FetchContext, result: FetchPass
    ) -> "list[object] | Coroutine[Any, Any, list[object]]":
        """Read the remote partitions side by side, then answer for all: at once if all are here."""
        longest_ms = self._limits.remote_wait_ms()
        deadline_ms = self._clock.monotonic_ms() + longest_ms
        reading: dict[asyncio.Future[RemoteFetched], PartitionRead] = {}
        for wanted in result.remote:
            read = result.reads[wanted.index]
            future = self._start_remote(params, read, wanted, deadline_ms)
            if future is not None:
                reading[future] = read
        if not all(future.done() for future in reading):
            return self._await_remote(params, session, result, reading, longest_ms)
        for future, read in reading.items():
            self._take_remote(params, read, future)
        return self._answer(params, session, result)

    async def _await_remote(
        self,
        params: FetchParams,
        session: FetchContext,
        result: FetchPass,
        reading: "dict[asyncio.Future[RemoteFetched], PartitionRead]",
        longest_ms: int,
    ) -> list[object]:
        pending = set(reading)
        try:
            if result.size_bytes or result.must_answer:
                wait_ms = max(params.max_wait_ms, _REMOTE_WAIT_MIN_MS)
                pending = await _wait(pending, min(wait_ms, longest_ms + _REMOTE_SLACK_MS))
            else:
                pending = await _wait(pending, longest_ms + _REMOTE_SLACK_MS)
        finally:
            for future in pending:
                future.cancel()
        for future, read in reading.items():
            if future not in pending:
                self._take_remote(params, read, future)
        return self._answer(params, session, result)

    def _start_remote(
        self, params: FetchParams, read: PartitionRead, wanted: RemoteWanted, deadline_ms: int
    ) -> "asyncio.Future[RemoteFetched] | None":
        partition = read.partition
        assert partition is not None
        if self._remote is None:
            read.error = int(ErrorCode.KAFKA_STORAGE_ERROR)
            return None
        if wanted.max_bytes <= 0 and not wanted.min_one_batch:
            return None  # the budget went to others; the next fetch begins with this partition
        return self._remote.read(
            RemoteRead(
                topic_id=partition.topic_id,
                topic=partition.topic,
                partition=partition.partition,
                offset=read.fetch.offset,
                max_bytes=wanted.max_bytes,
                min_one_batch=wanted.min_one_batch,
                isolation_level=READ_COMMITTED if params.read_committed else 0,
                deadline_ms=deadline_ms,
            )
        )

    def _take_remote(
        self, params: FetchParams, read: PartitionRead, future: "asyncio.Future[RemoteFetched]"
    ) -> None:
        partition = read.partition
        assert partition is not None
        try:
            fetched = future.result()
            if params.version < FIRST_VERSION_WITH_ZSTD:
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
            read.high_watermark = read.last_stable_offset = read.log_start_offset = -1


async def _wait(
    pending: "set[asyncio.Future[RemoteFetched]]", wait_ms: int
) -> "set[asyncio.Future[RemoteFetched]]":
    """Wait for all; returns those that are not done in time."""
    if not pending:
        return pending
    _, left = await asyncio.wait(pending, timeout=wait_ms / 1000)
    return left


def _nowhere(_listener: str) -> Iterable[BrokerAddress]:
    return ()


def _never(context: RequestContext, request: Any) -> Any:
    raise AssertionError("Fetch is served by its raw form")


def make(
    replicas: ReplicaManager,
    *,
    limits: FetchLimits,
    clock: Clock,
    scheduler: Scheduler,
    dice: Dice,
    remote: RemoteReader | None = None,
    addresses: Addresses = _nowhere,
) -> Handler:
    """Make the handler of Fetch 4-18."""
    handler = FetchHandler(
        replicas,
        limits=limits,
        clock=clock,
        scheduler=scheduler,
        dice=dice,
        remote=remote,
        addresses=addresses,
    )
    return Handler(ApiKey.FETCH, 4, 18, _never, raw=handler.raw)
