"""Fetch (1): read whole batches, from local files or from the remote tier.

The answer leaves at once if there are enough bytes, an error, or no wait time. Otherwise the
request is parked until appends bring enough bytes. Partitions whose offset is only in the remote
tier are read concurrently. If the answer has other data or errors, it waits for them only as long
as the client allows, but at least `_REMOTE_WAIT_MIN_MS`.

Versions:

* 4: the lowest with batches of format 2; isolation level, last stable offset and aborted
  transactions (KIP-98).
* 5: log start offset, a follower's in the request and the leader's in the answer (KIP-107).
* 6: no new field; KAFKA_STORAGE_ERROR may be answered (KIP-112).
* 7: sessions (KIP-227).
* 8: no new field; the client waits out a throttle, not the broker (KIP-219).
* 9: the leader epoch that the client knows (KIP-320).
* 10: no new field; zstd (KIP-110).
* 11: the client's rack, and the preferred read replica, if `replica.selector.class` is set. From
  here on consumers may fetch from followers, see `broker.replica.follower_reads` (KIP-392).
* 12: flexible (KIP-482); last fetched epoch, diverging epoch, current leader (KIP-595) and the id
  of a snapshot (KIP-630).
* 13: topics by id instead of name (KIP-516).
* 14: no new field; a follower may get OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405).
* 15: a follower's id moves into a tagged field, with its broker epoch (KIP-903).
* 16: the endpoint of a new leader (KIP-951).
* 17: a follower's directory id (KIP-853).
* 18: a follower's high watermark (KIP-1166).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from broker.handlers import fetch_versions as since
from broker.handlers.fetch_asked import ask_in_slices
from broker.handlers.fetch_codec import (
    encode_answer,
    encode_endpoints,
    encode_in_slices,
)
from broker.handlers.fetch_read import SLICE_PARTITIONS, read_in_slices
from broker.handlers.fetch_remote import RemoteReader, start_remote, take_remote
from broker.handlers.long_answers import Answering, answer_or_future, awaited
from broker.handlers.parts import HandlerParts
from broker.network.dispatch import DECODED_AT_ONCE_BYTES, decoders
from broker.network.registry import (
    CloseConnection,
    OrderedAnswer,
    RawHandler,
    RequestContext,
    own_body,
)
from broker.purgatory.delayed_fetch import DelayedFetch
from broker.remote.reads import RemoteFetched
from broker.replica.fetch_passes import FetchPasses
from broker.replica.fetch_session import FetchContext, FetchSessionCache, forgotten_keys
from broker.replica.fetch_types import (
    ColdRead,
    FetchParams,
    FetchPartition,
    FetchPass,
    PartitionRead,
)
from broker.replica.manager import ReplicaManager
from broker.topics.cluster import Addresses, nowhere
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import is_read_committed
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from kafka_protocol.wire.schema import Versions
from local_log.log import lookups
from runtime.ports import Ports
from runtime.work import Steps, at_once, run_in_steps

_REMOTE_SLACK_MS: Final = 250
"""The tier answers by its deadline; this long after it the answer leaves without the tier."""
_REMOTE_WAIT_MIN_MS: Final = 50
"""Minimum wait for the tier, even if the client's wait time is shorter.

Otherwise a client that gets local data or errors in each answer would never get data of its remote
partitions.
"""

NOBODY: Final = frozenset[int]()
NEAR_KNOWN_MS: Final = 1_000
"""Age at which the cached brokers of each rack are looked up again."""

PARTITIONS_MAX: Final = 100_000
"""DIFFERS: Kafka has no limit other than the size of a request."""

_message = request(ApiKey.FETCH)
_decode = _message.decode


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Settings of the fetch path.

    Attributes:
        max_bytes: Largest answer (`fetch.max.bytes`).
        session_slots: `max.incremental.fetch.session.cache.slots`.
        remote_wait_ms: Returns the current longest wait for the remote tier
            (`remote.fetch.max.wait.ms`).
        selects_by_rack: The leader names a replica in the consumer's rack
            (`replica.selector.class`).
    """

    max_bytes: int = 57_671_680
    session_slots: int = 1_000
    remote_wait_ms: Callable[[], int] = lambda: 500
    selects_by_rack: bool = False


class FetchHandler(RawHandler):
    """Serves Fetch 4-18."""

    api_key = ApiKey.FETCH
    versions = Versions(4, 18)
    slice_partitions = SLICE_PARTITIONS
    """Partitions read in one slice."""

    def __init__(
        self,
        replicas: ReplicaManager,
        ports: Ports,
        *,
        limits: FetchLimits,
        remote: RemoteReader | None = None,
        addresses: Addresses = nowhere,
    ) -> None:
        """Read the partitions of `replicas`; `remote` is None without a remote tier."""
        self._replicas, self._limits, self._addresses = replicas, limits, addresses
        self._clock, self._scheduler, self._remote = ports.clock, ports.scheduler, remote
        self._decoders = decoders(ports.executors)
        self._reads = ports.executors.reads
        self._near_by_rack: dict[tuple[str, str], frozenset[int]] = {}
        self._near_until_ms = 0
        self.sessions = FetchSessionCache(slots_max=limits.session_slots, rng=ports.rng)

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        """Serve one Fetch; the request is decoded on a thread if it is long."""
        if len(frame) - offset > DECODED_AT_ONCE_BYTES:
            body = own_body(frame, offset)
            elements = _message.elements_max(len(body), context.api_version)
            return OrderedAnswer(partial(self._serve_long, context, body), elements)
        asked, _ = _decode(frame, context.api_version, offset)
        return self._serve(context, asked, at_once(self._session(context, asked)))

    async def _serve_long(
        self, context: RequestContext, body: memoryview, in_order: OrderedAnswer
    ) -> Any:
        """Serve a long request, which a thread decodes."""
        asked, _ = await self._decoders.run(_decode, body, context.api_version, 0)
        session = await run_in_steps(self._session(context, asked))
        answer = self._serve(context, asked, session, parked=in_order.let_go)
        del asked, body, session  # frees the memory: the answer may be parked for long
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _session(self, context: RequestContext, asked: Any) -> Steps[FetchContext | ErrorCode]:
        """The requested partitions, or the error that refuses the request; works in slices."""
        version = context.api_version
        with_ids = version >= since.TOPIC_IDS
        partitions: list[FetchPartition] = []
        yield from ask_in_slices(self._replicas, version, asked, partitions)
        if len(partitions) > PARTITIONS_MAX:
            if version < since.SESSIONS:
                raise CloseConnection(f"a Fetch of {len(partitions)} partitions")
            return ErrorCode.INVALID_REQUEST
        try:
            session = yield from self.sessions.begin(
                session_id=asked.session_id,
                session_epoch=asked.session_epoch,
                asked=partitions,
                forgotten=forgotten_keys(asked, with_ids=with_ids),
                with_ids=with_ids,
                now_ms=self._clock.monotonic_ms(),
            )
        except ApiError as error:
            return error.code
        return session

    def _serve(
        self,
        context: RequestContext,
        asked: Any,
        session: FetchContext | ErrorCode,
        *,
        parked: Callable[[], None] = lambda: None,
    ) -> "list[object] | asyncio.Future[list[object]]":
        if isinstance(session, ErrorCode):
            return encode_answer(context.api_version, int(session), 0, ())
        return answer_or_future(self._served(self._params(context, asked), session, parked))

    def _served(
        self, params: FetchParams, session: FetchContext, parked: Callable[[], None]
    ) -> Answering[list[object]]:
        """Read, wait for missing data, and answer; `parked` is called if it is parked.

        On every exit, including cancellation, the fetch is removed from all watches.
        """
        passes = self._passes(params, session)
        try:
            result = yield from self._run_pass(params, passes, may_wait=False)
            if result.cold:
                yield from awaited(self._make_ready(params, result.cold))
                passes.begin_again()
                result = yield from self._run_pass(params, passes)
            if result.remote:
                yield from self._read_remote(params, result)
            elif (missing := missing_bytes(params, passes, result)) > 0:
                parked()
                result = yield from self._wait(params, passes, missing)
            self._count_bytes(params, result)
            chosen = yield from passes.answer()
            if params.near:
                _note_sent_away(params, chosen)
            endpoints = self._endpoints(params, chosen)
            return (
                yield from encode_in_slices(
                    params.version, 0, session.session_id, chosen, endpoints
                )
            )
        finally:
            passes.leave()

    def _passes(self, params: FetchParams, session: FetchContext) -> FetchPasses:
        session.watch.is_replicas = params.replica_id >= 0
        return FetchPasses(session)

    def _run_pass(
        self, params: FetchParams, passes: FetchPasses, *, may_wait: bool = True
    ) -> Answering[FetchPass]:
        """Read the partitions that are due; between slices, changes of the others are recorded."""
        result, taken = FetchPass(may_wait=may_wait), 0
        for _ in read_in_slices(
            self._replicas, params, passes.due(), result, slice_partitions=self.slice_partitions
        ):
            passes.take(result.reads[taken:], watches=True)
            taken = len(result.reads)
            yield None
        passes.take(result.reads[taken:] if taken else result.reads, watches=taken > 0)
        return result

    def _wait(self, params: FetchParams, passes: FetchPasses, missing: int) -> Answering[FetchPass]:
        """Park on every partition until enough bytes came; returns the last pass."""
        passes.park()
        delayed = DelayedFetch(
            watch=passes.context.watch, wait_ms=params.max_wait_ms, scheduler=self._scheduler
        )
        try:
            while True:
                yield from delayed.until_due(missing)
                is_last = delayed.is_over
                result = yield from self._run_pass(params, passes)
                missing = missing_bytes(params, passes, result)
                # An offset that became remote while parked is served by the next fetch.
                if missing <= 0 or is_last or result.remote:
                    return result
        finally:
            delayed.finish()

    async def _make_ready(self, params: FetchParams, cold: Sequence[ColdRead]) -> None:
        """Load cold indexes on threads; an error recurs in the pass, which reports it."""
        await asyncio.gather(
            *(
                self._reads.run(
                    lookups.make_ready,
                    one.partition.log,
                    one.offset,
                    one.max_bytes,
                    one.end,
                    whole=one.partition.durable or params.version < since.ZSTD,
                )
                for one in cold
            ),
            return_exceptions=True,
        )

    # -- the request

    def _params(self, context: RequestContext, asked: Any) -> FetchParams:
        version = context.api_version
        max_bytes = min(asked.max_bytes, self._limits.max_bytes)
        if version >= since.REPLICA_STATE:
            replica_id = asked.replica_state.replica_id
            broker_epoch = asked.replica_state.replica_epoch
        else:
            replica_id, broker_epoch = asked.replica_id, -1
        return FetchParams(
            version,
            replica_id,
            asked.max_wait_ms,
            min(asked.min_bytes, max_bytes),
            max_bytes,
            is_read_committed(asked.isolation_level),
            broker_epoch,
            context.listener_name,
            context.peer,
            may_ask_followers=replica_id < 0 and version >= since.READ_REPLICA,
            near=self._near(context, asked.rack_id) if replica_id < 0 else NOBODY,
        )

    def _near(self, context: RequestContext, rack: str) -> frozenset[int]:
        """The brokers of a consumer's rack; empty if this broker is one of them."""
        if not rack or not self._limits.selects_by_rack:
            return NOBODY
        now_ms, key = self._clock.monotonic_ms(), (context.listener_name, rack)
        if now_ms >= self._near_until_ms:
            self._near_by_rack.clear()
            self._near_until_ms = now_ms + NEAR_KNOWN_MS
        near = self._near_by_rack.get(key)
        if near is None:
            brokers = self._addresses(context.listener_name)
            near = frozenset(one.id for one in brokers if one.rack == rack)
            near = self._near_by_rack[key] = NOBODY if self._replicas.node_id in near else near
        return near

    # -- the answer

    @staticmethod
    def _count_bytes(params: FetchParams, result: FetchPass) -> None:
        for read in result.reads:
            if read.size_bytes and read.partition is not None:
                counters = read.partition.counters
                is_consumer = params.replica_id < 0
                sent = counters.bytes_out if is_consumer else counters.replication_bytes_out
                sent.value += read.size_bytes

    def _endpoints(self, params: FetchParams, chosen: Sequence[PartitionRead]) -> bytes:
        """Endpoints of the leaders in the answer; none for replicas, which have the metadata."""
        if params.replica_id >= 0:
            return b""
        leaders = {read.leader[0] for read in chosen if read.leader is not None}
        if not leaders or params.version < since.NODE_ENDPOINTS:
            return b""
        return encode_endpoints(
            one for one in self._addresses(params.listener) if one.id in leaders
        )

    # -- remote partitions

    def _read_remote(self, params: FetchParams, result: FetchPass) -> Answering[None]:
        """Read the remote partitions concurrently; late ones are left out of the answer."""
        longest_ms = self._limits.remote_wait_ms()
        deadline_ms = self._clock.monotonic_ms() + longest_ms
        reading: dict[asyncio.Future[RemoteFetched], PartitionRead] = {}
        for wanted in result.remote:
            read = result.reads[wanted.index]
            future = start_remote(self._remote, params, read, wanted, deadline_ms)
            if future is not None:
                reading[future] = read
        late = {future for future in reading if not future.done()}
        if late:
            wait_ms = longest_ms + _REMOTE_SLACK_MS
            if result.size_bytes or result.must_answer:
                wait_ms = min(wait_ms, max(params.max_wait_ms, _REMOTE_WAIT_MIN_MS))
            try:
                _, late = yield from awaited(asyncio.wait(late, timeout=wait_ms / 1000))
            finally:
                for future in late:
                    future.cancel()
        for future, read in reading.items():
            if future not in late:
                take_remote(params, read, future)


def _note_sent_away(params: FetchParams, chosen: Sequence[PartitionRead]) -> None:
    for read in chosen:
        followers = None if read.partition is None else read.partition.followers
        if read.nearer is not None and followers is not None:
            followers.sent_away(read.fetch.offset, params.peer)


def missing_bytes(params: FetchParams, passes: FetchPasses, result: FetchPass) -> int:
    """Number of bytes still missing before the answer is due; 0 or less: answer now."""
    if params.max_wait_ms <= 0 or result.must_answer or not passes.context.count:
        return 0
    return params.min_bytes - result.size_bytes


def make(parts: HandlerParts) -> FetchHandler:
    """Make the handler of Fetch."""
    config, live = parts.config, parts.live
    limits = FetchLimits(
        max_bytes=config.fetch_max_bytes,
        session_slots=config.max_incremental_fetch_session_cache_slots,
        remote_wait_ms=lambda: live.current.remote_fetch_max_wait_ms,
        selects_by_rack=config.selects_by_rack,
    )
    return FetchHandler(
        parts.replicas,
        parts.ports,
        limits=limits,
        remote=parts.tier,
        addresses=parts.cluster.addresses,
    )
