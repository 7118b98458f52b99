"""Fetch (1): read whole batches, from local files or from the remote tier.

Answered at once if there are enough bytes, an error, or no will to wait; else parked until an
append brings what is missing. Partitions whose offset is only in the remote tier are read side by
side, and the answer waits for them, but what else is in it is not held back longer than the client
itself would wait, or a moment.

Versions:

* 4: the lowest with batches of format 2; isolation level, last stable offset and aborted
  transactions (KIP-98).
* 5: log start offset, a follower's in the request and the leader's in the answer (KIP-107).
* 6: no new field; KAFKA_STORAGE_ERROR may be answered (KIP-112).
* 7: sessions (KIP-227).
* 8: no new field; the client waits out a throttle, not the broker (KIP-219).
* 9: the leader epoch that the client knows (KIP-320).
* 10: no new field; zstd (KIP-110).
* 11: the client's rack, and a replica nearer to it, to which the leader sends it where
  `replica.selector.class` says so; from here on consumers may ask followers, see
  `broker.replica.follower_reads` (KIP-392).
* 12: flexible (KIP-482); last fetched epoch, diverging epoch, current leader (KIP-595) and the id
  of a snapshot (KIP-630).
* 13: topics by id instead of name (KIP-516).
* 14: no new field; a follower may be sent OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405).
* 15: a follower's id moves into a tagged field, with its broker epoch (KIP-903).
* 16: where a new leader listens (KIP-951).
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
"""The tier answers by its deadline; this much later we continue without it."""
_REMOTE_WAIT_MIN_MS: Final = 50
"""Also a client that does not wait gives the tier so long to hand over what it has at hand: local
data or errors in each answer would keep remote partitions from it permanently."""

NOBODY: Final = frozenset[int]()
NEAR_KNOWN_MS: Final = 1_000
"""Who stands in which rack is looked up so often."""

PARTITIONS_MAX: Final = 100_000
"""DIFFERS: Kafka takes as many as fit into a request."""

_message = request(ApiKey.FETCH)
_decode = _message.decode


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Settings of the fetch path.

    Attributes:
        max_bytes: of one answer (`fetch.max.bytes`).
        session_slots: `max.incremental.fetch.session.cache.slots`.
        remote_wait_ms: longest wait for the remote tier now (`remote.fetch.max.wait.ms`).
        selects_by_rack: consumers are sent to a replica in their rack (`replica.selector.class`).
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
    """After so many the loop may serve somebody else."""

    def __init__(
        self,
        replicas: ReplicaManager,
        ports: Ports,
        *,
        limits: FetchLimits,
        remote: RemoteReader | None = None,
        addresses: Addresses = nowhere,
    ) -> None:
        """Read the partitions of `replicas`; `remote` is None where there is no remote tier."""
        self._replicas, self._limits, self._addresses = replicas, limits, addresses
        self._clock, self._scheduler, self._remote = ports.clock, ports.scheduler, remote
        self._decoders = decoders(ports.executors)
        self._reads = ports.executors.reads
        self._near_by_rack: dict[tuple[str, str], frozenset[int]] = {}
        self._near_until_ms = 0
        self.sessions = FetchSessionCache(slots_max=limits.session_slots, rng=ports.rng)

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        """See `RawHandler`."""
        if len(frame) - offset > DECODED_AT_ONCE_BYTES:
            body = own_body(frame, offset)
            elements = _message.elements_max(len(body), context.api_version)
            return OrderedAnswer(partial(self._serve_long, context, body), elements)
        asked, _ = _decode(frame, context.api_version, offset)
        return self._serve(context, asked, at_once(self._session(context, asked)))

    async def _serve_long(
        self, context: RequestContext, body: memoryview, in_order: OrderedAnswer
    ) -> Any:
        """Serve a request that takes long to decode, which a thread does."""
        asked, _ = await self._decoders.run(_decode, body, context.api_version, 0)
        session = await run_in_steps(self._session(context, asked))
        answer = self._serve(context, asked, session, parked=in_order.let_go)
        del asked, body, session  # it may be parked for long
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _session(self, context: RequestContext, asked: Any) -> Steps[FetchContext | ErrorCode]:
        """Find out what is asked for, or why it is refused; yields after each slice of it."""
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
        """Look, wait for what is not there yet, and answer; `parked` is called if it is parked.

        However it ends, nothing of it stays registered anywhere.
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
        """Look at what is due; between slices of it what happens to the others is noted."""
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
        """Wait for bytes on every partition of the fetch; the pass after which it is answered."""
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
                # An offset that went remote while it was parked is served by the next fetch.
                if missing <= 0 or is_last or result.remote:
                    return result
        finally:
            delayed.finish()

    async def _make_ready(self, params: FetchParams, cold: Sequence[ColdRead]) -> None:
        """What goes wrong here goes wrong again at the pass, and is told of that partition."""
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
        """The brokers of a consumer's rack, where this one is not among them."""
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
        """Where the leaders are of which the answer tells; a replica knows it by itself."""
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
        """Read the remote partitions side by side; those that are late are excluded."""
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
    """How many bytes must still come before the answer is due; 0 or less: answer now."""
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
