"""Fetch sessions (KIP-227): what a consumer asks for is remembered, so that it sends changes only.

A session is a list of partitions with the fetch position of each and what the client was last told.
An incremental answer leaves out partitions about which there is nothing new; those that brought
data move to the end of the list, so that no partition starves behind a busy one.

The cache is bounded. Who gets no slot is served without a session (session id 0), which every
client understands. Pure but for the dice that draw session ids.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from broker.replica.fetch_types import FetchPartition, PartitionKey, PartitionRead
from kafka_protocol.errors import ApiError, ErrorCode
from runtime.dice import Dice

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
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
        epoch: what the next request must carry.
        with_ids: topics are named by id (version 13 on); fixed for the session's life.
    """

    id: int
    with_ids: bool
    epoch: int
    last_used_ms: int
    partitions: OrderedDict[PartitionKey, FetchPartition] = field(default_factory=OrderedDict)


class FetchContext:
    """One request seen through its session: which partitions to read, and what to answer."""

    __slots__ = ("_cache", "_full", "_now_ms", "_session", "partitions")

    def __init__(
        self,
        cache: "FetchSessionCache | None",
        session: FetchSession | None,
        partitions: Sequence[FetchPartition],
        *,
        full: bool,
        with_ids: bool = False,
        now_ms: int = 0,
    ) -> None:
        self._cache, self._session = cache, session
        self.partitions = partitions
        self._full = full
        self._now_ms = now_ms
        if cache is not None and session is None:
            self._session = cache.create(partitions, with_ids=with_ids, now_ms=now_ms)

    @property
    def session_id(self) -> int:
        """What the answer carries; 0 without a session."""
        return NO_SESSION if self._session is None else self._session.id

    def to_answer(self, reads: Sequence[PartitionRead]) -> Sequence[PartitionRead]:
        """Choose what goes into the answer, and remember what the client has then been told."""
        session = self._session
        if session is None:
            return reads
        chosen: list[PartitionRead] = []
        for read in reads:
            fetch = read.fetch
            news = (
                read.size_bytes > 0
                or read.error != 0
                or read.diverging is not None
                or fetch.told_high_watermark != read.high_watermark
                or fetch.told_log_start_offset != read.log_start_offset
            )
            if not self._full and not news:
                continue
            chosen.append(read)
            # After an error the next answer must name the partition again, whatever it says.
            fetch.told_high_watermark = -1 if read.error else read.high_watermark
            fetch.told_log_start_offset = read.log_start_offset
            if read.size_bytes > 0 and fetch.key in session.partitions:
                session.partitions.move_to_end(fetch.key)
        return chosen


class FetchSessionCache:
    """The sessions of this broker, least recently used first."""

    def __init__(self, *, slots_max: int, dice: Dice) -> None:
        """Keep at most `slots_max` sessions (`max.incremental.fetch.session.cache.slots`)."""
        self._slots_max = slots_max
        self._dice = dice
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

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
    ) -> FetchContext:
        """Find out which partitions a request is about.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR, for the whole request.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            if session_epoch == FINAL_EPOCH:
                return FetchContext(None, None, asked, full=True)
            return FetchContext(self, None, asked, full=True, with_ids=with_ids, now_ms=now_ms)
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "no such fetch session")
        if session.epoch != session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "unexpected session epoch")
        if session.with_ids != with_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session named topics otherwise"
            )
        self._update(session, asked, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(None, None, asked, full=True)
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        self._sessions.move_to_end(session_id)
        return FetchContext(self, session, list(session.partitions.values()), full=False)

    def create(
        self, partitions: Sequence[FetchPartition], *, with_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """Make a session if there is a slot for it, or one whose owner has not come for long."""
        if not partitions:
            return None
        if len(self._sessions) >= self._slots_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= EVICTION_MS:
                return None
            del self._sessions[oldest.id]
        session_id = self._draw_id()
        session = FetchSession(
            session_id,
            with_ids,
            next_epoch(INITIAL_EPOCH),
            now_ms,
            OrderedDict((partition.key, partition) for partition in partitions),
        )
        self._sessions[session_id] = session
        return session

    def _draw_id(self) -> int:
        while True:
            drawn = 1 + int(self._dice.random() * (EPOCH_MAX - 1))
            if drawn not in self._sessions:
                return drawn

    @staticmethod
    def _update(
        session: FetchSession, asked: Sequence[FetchPartition], forgotten: Iterable[PartitionKey]
    ) -> None:
        for partition in asked:
            known = session.partitions.get(partition.key)
            if known is not None:
                partition.told_high_watermark = known.told_high_watermark
                partition.told_log_start_offset = known.told_log_start_offset
            session.partitions[partition.key] = partition
        for key in forgotten:
            session.partitions.pop(key, None)


def forgotten_keys(request: Any, *, with_ids: bool) -> list[PartitionKey]:
    """Partitions that a Fetch request takes out of its session.

    Args:
        request: decoded struct (Any: made by the codec at run time).
        with_ids: topics are named by id.
    """
    return [
        (topic.topic_id if with_ids else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
