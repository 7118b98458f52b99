"""Fetch sessions (KIP-227): the broker keeps a consumer's request, which then sends changes only.

A session is a list of partitions with the fetch position of each and the values of the last answer.
An incremental answer leaves out partitions without news. Partitions that brought data move to the
end of the list, so that no partition starves behind a busy one.

A session also has the set of its partitions that may have news, see `fetch_passes`. So a request of
a client that is at the end of nearly all of them costs what changed.

The cache is bounded. A client without a slot is served without a session (session id 0), which
every client supports. Pure but for the random session ids.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from broker.replica.fetch_types import FetchPartition, PartitionKey, PartitionRead
from broker.replica.fetch_watch import FetchWatch
from broker.replica.partition import Partition
from kafka_protocol.errors import ApiError, ErrorCode
from runtime.rng import Rng
from runtime.work import Steps

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
order_of = attrgetter("order")
SLICE_PARTITIONS: Final = 500
"""Partitions of a session in one iteration of the event loop."""
PARTITIONS_MAX: Final = 500_000
"""Of all sessions together: some 350 bytes each, including partitions that do not exist."""
EVICTION_MS: Final = 120_000
"""A session that was used within this time keeps its slot."""


def next_epoch(epoch: int) -> int:
    """The epoch after `epoch`: wraps from 2147483647 to 1, because 0 asks for a new session."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


@dataclass(slots=True)
class FetchSession:
    """One client's standing request.

    Attributes:
        epoch: Required in the next request.
        with_ids: Topics are named by id (version 13 on); fixed for the session's lifetime.
        pending: Partitions that the next fetch must look at in any case.
        is_in_use: A fetch of it is not answered yet.
        is_gone: It left the cache.
    """

    id: int
    with_ids: bool
    epoch: int
    last_used_ms: int
    partitions: OrderedDict[PartitionKey, FetchPartition] = field(default_factory=OrderedDict)
    watch: FetchWatch[Partition] = field(default_factory=FetchWatch)
    pending: set[FetchPartition] = field(default_factory=set)
    next_order: int = 0
    is_in_use: bool = False
    is_gone: bool = False

    def to_the_end(self, fetch: FetchPartition) -> None:
        """Read this partition after all others from now on."""
        fetch.order = self.next_order
        self.next_order += 1
        self.partitions.move_to_end(fetch.key)

    def named(self, partition: Partition) -> FetchPartition | None:
        """The client's entry for a partition."""
        name = partition.topic_id if self.with_ids else partition.topic
        return self.partitions.get((name, partition.partition))

    def drop(self) -> None:
        """Mark it as gone from the cache; its watch ends with the last fetch."""
        self.is_gone = True
        if not self.is_in_use:
            self.watch.close()


class FetchContext:
    """One request seen through its session: the partitions to read, and those to answer.

    Attributes:
        partitions: Partitions to read first, in their order; the others have no news.
    """

    __slots__ = ("_by_key", "_full", "_owns_session", "_session", "_watch", "partitions")

    def __init__(
        self,
        session: FetchSession | None,
        partitions: Sequence[FetchPartition],
        *,
        full: bool,
    ) -> None:
        self._session, self._full = session, full
        self.partitions = partitions
        # Two fetches of one session at a time: the second one looks at all partitions.
        self._owns_session = session is not None and not session.is_in_use
        self._by_key: dict[PartitionKey, list[FetchPartition]] | None = None
        if session is not None and self._owns_session:
            session.is_in_use = True
            self._watch: FetchWatch[Partition] | None = session.watch
        else:
            self._watch = None
            if session is not None:
                self.partitions = list(session.partitions.values())

    @property
    def session_id(self) -> int:
        """Session id of the answer; 0 without a session."""
        return NO_SESSION if self._session is None else self._session.id

    @property
    def has_session(self) -> bool:
        """True if later fetches continue at the end of this one."""
        return self._session is not None

    @property
    def watch(self) -> FetchWatch[Partition]:
        """Notes changes of the partitions that were looked at."""
        if self._watch is None:
            self._watch = FetchWatch()
        return self._watch

    @property
    def count(self) -> int:
        """How many partitions it asks for."""
        return len(self.partitions if self._session is None else self._session.partitions)

    def all_partitions(self) -> Sequence[FetchPartition]:
        """All of them, in their order."""
        if self._full or self._session is None:
            return self.partitions
        return list(self._session.partitions.values())

    def noted(self) -> set[FetchPartition]:
        """The client's entries for the changed partitions; it stops watching those without one."""
        found: set[FetchPartition] = set()
        for partition in self.watch.take_changed():
            named = self.named(partition)
            found.update(named)
            if not named:
                self.watch.leave(partition)
        return found

    def named(self, partition: Partition) -> Sequence[FetchPartition]:
        """The client's entries for a partition."""
        if self._session is not None and not self._full:
            found = self._session.named(partition)
            return () if found is None else (found,)
        if self._by_key is None:  # the client may have named one twice
            self._by_key = {}
            for order, fetch in enumerate(self.partitions):
                fetch.order = order
                self._by_key.setdefault(fetch.key, []).append(fetch)
        for name in (partition.topic_id, partition.topic):
            if (name, partition.partition) in self._by_key:
                return self._by_key[name, partition.partition]
        return ()

    def end(self, pending: Iterable[FetchPartition] = ()) -> None:
        """End the fetch; the next one of the session looks at `pending` and at what changes.

        `pending`: all that this fetch has looked at, if it was not answered.
        """
        session = self._session
        if not self._owns_session:
            if self._watch is not None:
                self._watch.close()
        elif session is not None:
            session.is_in_use = False
            if session.is_gone:
                session.watch.close()
        if session is not None:
            session.pending.update(pending)

    def to_answer(self, reads: Sequence[PartitionRead]) -> Sequence[PartitionRead]:
        """Choose the partitions of the answer, and keep their values as sent."""
        session = self._session
        if session is None:
            return reads
        chosen: list[PartitionRead] = []
        pending = session.pending
        for read in reads:
            fetch = read.fetch
            if read.at_end:
                pending.discard(fetch)
            else:
                pending.add(fetch)
            news = (
                read.size_bytes > 0
                or read.error != 0
                or read.diverging is not None
                or read.nearer is not None
                or fetch.sent_high_watermark != read.high_watermark
                or fetch.sent_log_start_offset != read.log_start_offset
            )
            if not self._full and not news:
                continue
            chosen.append(read)
            # After an error the next answer must name the partition again, changed or not.
            fetch.sent_high_watermark = -1 if read.error else read.high_watermark
            fetch.sent_log_start_offset = read.log_start_offset
            if read.size_bytes > 0 and fetch.key in session.partitions:
                session.to_the_end(session.partitions[fetch.key])
        return chosen


class FetchSessionCache:
    """The sessions of this broker, least recently used first."""

    def __init__(self, *, slots_max: int, rng: Rng) -> None:
        """Keep at most `slots_max` sessions (`max.incremental.fetch.session.cache.slots`)."""
        self._slots_max = slots_max
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partitions = 0  # of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        *,
        session_id: int,
        session_epoch: int,
        asked: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey],
        with_ids: bool,
        now_ms: int,
    ) -> Steps[FetchContext]:
        """Find out which partitions a request is about; yields after each slice of them.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR, for the whole request.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._drop(session_id)
            if session_epoch == FINAL_EPOCH:
                return FetchContext(None, asked, full=True)
            session = yield from self._create(asked, with_ids=with_ids, now_ms=now_ms)
            return FetchContext(session, asked, full=True)
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "no such fetch session")
        if session.epoch != session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "unexpected session epoch")
        if session.with_ids != with_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session named topics otherwise"
            )
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        self._sessions.move_to_end(session_id)
        before = len(session.partitions)
        yield from self._update(session, asked, forgotten)
        if self._partitions > PARTITIONS_MAX and len(session.partitions) > before:
            self._drop(session_id)
        if not session.partitions and not session.is_gone:
            self._drop(session_id)
            return FetchContext(None, asked, full=True)
        news = yield from self._with_news(session)
        if session.is_gone:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "there is no room for the session")
        return FetchContext(session, news, full=False)

    @staticmethod
    def _with_news(session: FetchSession) -> Steps[list[FetchPartition]]:
        if not session.is_in_use:
            for number, partition in enumerate(session.watch.take_changed(), 1):
                fetch = session.named(partition)
                if fetch is not None:
                    session.pending.add(fetch)
                else:
                    session.watch.leave(partition)
                if number % SLICE_PARTITIONS == 0:
                    yield
        # A partition that was named again or forgotten meanwhile has another entry now.
        known = session.partitions
        found = [fetch for fetch in session.pending if known.get(fetch.key) is fetch]
        if len(found) != len(session.pending):
            session.pending = set(found)
        return sorted(found, key=order_of)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
            session.drop()

    def _create(
        self, asked: Sequence[FetchPartition], *, with_ids: bool, now_ms: int
    ) -> Steps[FetchSession | None]:
        """Make a session if there is a slot for it; it enters the cache when it is complete."""
        if not asked or not self._has_slot(now_ms, len(asked)):
            return None
        partitions: OrderedDict[PartitionKey, FetchPartition] = OrderedDict()
        for order, partition in enumerate(asked):
            if order and order % SLICE_PARTITIONS == 0:
                yield
            partition.order = order
            partitions[partition.key] = partition
        if not self._has_slot(now_ms, len(partitions)):  # others came meanwhile
            return None
        session = FetchSession(
            self._draw_id(),
            with_ids,
            next_epoch(INITIAL_EPOCH),
            now_ms,
            partitions,
            next_order=len(asked),
        )
        self._sessions[session.id] = session
        self._partitions += len(partitions)
        return session

    def _has_slot(self, now_ms: int, partitions: int) -> bool:
        """True if there is a slot for a session of so many partitions.

        Evicts sessions that were not used for `EVICTION_MS`.
        """
        while (
            len(self._sessions) >= self._slots_max or self._partitions + partitions > PARTITIONS_MAX
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= EVICTION_MS:
                return False
            self._drop(oldest.id)
        return True

    def _draw_id(self) -> int:
        while True:
            drawn = 1 + int(self._rng.random() * (EPOCH_MAX - 1))
            if drawn not in self._sessions:
                return drawn

    def _update(
        self,
        session: FetchSession,
        asked: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey],
    ) -> Steps[None]:
        """Apply the changes of a request; stops if the session leaves the cache meanwhile."""
        for number, partition in enumerate(asked, 1):
            known = session.partitions.get(partition.key)
            if known is not None:
                partition.sent_high_watermark = known.sent_high_watermark
                partition.sent_log_start_offset = known.sent_log_start_offset
                partition.order = known.order
                session.pending.discard(known)
            else:
                partition.order = session.next_order
                session.next_order += 1
                self._partitions += 1
            session.partitions[partition.key] = partition
            session.pending.add(partition)
            if number % SLICE_PARTITIONS == 0:
                yield
                if session.is_gone:
                    return
        for number, key in enumerate(forgotten, 1):
            gone = session.partitions.pop(key, None)
            if gone is not None:
                self._partitions -= 1
                session.pending.discard(gone)
            if number % SLICE_PARTITIONS == 0:
                yield
                if session.is_gone:
                    return


def forgotten_keys(request: Any, *, with_ids: bool) -> list[PartitionKey]:
    """Partitions that a Fetch request removes from its session.

    Args:
        request: Decoded struct (Any: made by the codec at run time).
        with_ids: Topics are named by id.
    """
    return [
        (topic.topic_id if with_ids else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
