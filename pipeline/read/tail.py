"""Reads what the brokers serve: raw Fetch, whose batches go to the decoder as they are.

Progress is by the offsets of batches, never by rows: an offset that is a marker, or that compaction
took away, is passed like any other, and is not waited for.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from kafka_client.blocking import ClusterError
from kafka_protocol.records.batch import Buffer, iter_batches
from pipeline.aborted import AbortedRange, AbortedRanges
from pipeline.cluster.cluster import NotNowError
from pipeline.decode.asked import AbortedLookup
from pipeline.decode.group import Keep, Origin
from pipeline.errors import DamagedDataError
from pipeline.read.groups import BatchFront, Group, ReadLimits, batch_front
from pipeline.read.leader import Fetched, Leader, OutOfRangeError, TopicDeletedError
from pipeline.read.lost import LossRule
from pipeline.read.progress import Progress
from pipeline.values import TailPiece

OPEN_END = (1 << 63) - 2
"""Where a range ends whose marker is behind the answer: it is used for this answer alone."""

T = TypeVar("T")

_SPARE_BYTES = 64 << 10
"""An estimate may be a little low, and the first batch may begin before the piece."""
_GONE_S = 10.0
"""So long an unknown topic id may be one that brokers have not heard of yet."""


def aborted_ranges(named: Iterable[tuple[int, int]], data: Buffer) -> AbortedRanges:
    """The ranges for the batches of one answer.

    An answer names producer and first offset of each; where it ends is the marker in the log. A
    consumer notices the marker as it walks the batches; the decoder wants ranges.

    Args:
        named: producer id and first offset of each aborted transaction, as answered.
        data: the answer's whole batches.

    Returns:
        One range each, up to the producer's first marker at or above the first offset; without one
        in the answer it has no end.
    """
    wanted = list(named)
    if not wanted:
        return AbortedRanges()
    markers: dict[int, list[int]] = {producer_id: [] for producer_id, _ in wanted}
    for _, header in iter_batches(data):
        if header.is_control and header.producer_id in markers:
            markers[header.producer_id].append(header.base_offset)
    return AbortedRanges.of(
        AbortedRange(producer_id, first, _end(markers[producer_id], first))
        for producer_id, first in wanted
    )


def _end(markers: list[int], first: int) -> int:
    """The first marker at or above `first`; they ascend, as batches do."""
    at = bisect_left(markers, first)
    return markers[at] if at < len(markers) else OPEN_END


def first_fetch_bytes(bytes_estimate: int | None, bytes_max: int) -> int:
    """The first fetch of a piece.

    A broker fills an answer with what lies behind the piece, too.

    Args:
        bytes_estimate: of the piece, about; None: unknown.
        bytes_max: most that an answer should hold.
    """
    if bytes_estimate is None:
        return bytes_max
    return min(bytes_max, bytes_estimate * 3 // 2 + _SPARE_BYTES)


class _NotWrittenError(NotNowError):
    """The log ends before an offset that a plan saw; a new leader may still learn of it."""


class _BelowStartError(ClusterError):
    """The log begins behind the offset."""

    def __init__(self, start: int) -> None:
        super().__init__(f"the log begins at offset {start}")
        self.start = start


class TailGroups:
    """One piece while it is read."""

    def __init__(
        self,
        piece: TailPiece,
        leader: Leader,
        rule: LossRule,
        progress: Progress,
        limits: ReadLimits,
        bytes_estimate: int | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            piece: what is read.
            leader: is asked.
            rule: what happens to offsets that are gone.
            progress: learns of every answer.
            limits: sizes and deadlines.
            bytes_estimate: of the piece, about: no more than that is asked for at first.
        """
        self._piece, self._leader, self._rule = piece, leader, rule
        self._progress, self._limits = progress, limits
        self._max_bytes = first_fetch_bytes(bytes_estimate, limits.tail_bytes)

    def __iter__(self) -> Iterator[Group]:
        """All groups, ascending by offset.

        Raises:
            DataLossError: offsets are gone, and that is to be an error.
            ClusterError: the brokers do not answer, or refuse.
            DamagedDataError: an answer makes no sense.
            StoppedError: the reader was closed.
        """
        position, last = self._piece.first, self._piece.last
        while position <= last:
            try:
                fetched, front = self._retrying(partial(self._fetch, position))
            except _BelowStartError as error:
                reason = f"{error}: retention or DeleteRecords removed them"
                self._lose(position, min(error.start - 1, last), reason)
                position = error.start
                continue
            except _NotWrittenError as error:
                self._lose(position, last, f"{error}: records were given up in an election")
                return
            except TopicDeletedError as error:
                self._lose(position, last, str(error))
                return
            yield self._group(fetched, front, position)
            if front.next_offset <= position:
                raise DamagedDataError(
                    f"broker {fetched.broker} answered a fetch of {self._partition} at offset"
                    f" {position} with batches that end at {front.next_offset}"
                )
            position = front.next_offset
            # The estimate was too low: soon an answer is as large as one may be.
            self._max_bytes = max(
                self._max_bytes, min(2 * self._max_bytes, self._limits.tail_bytes)
            )

    @property
    def _partition(self) -> str:
        return str(self._piece.partition.topic_partition)

    def _fetch(self, position: int) -> tuple[Fetched, BatchFront]:
        try:
            fetched = self._leader.fetch(position, self._max_bytes)
        except OutOfRangeError:
            start = self._leader.log_start()
            if start > position:
                raise _BelowStartError(start) from None
            raise _NotWrittenError(f"the log ends before offset {position}") from None
        front = batch_front(fetched.records)
        if front.size_bytes:
            self._progress.moved()
            return fetched, front
        self._max_bytes = max(self._max_bytes, front.wanted_bytes)  # the first one was cut
        if position >= fetched.end:
            self._leader.forget()
            raise _NotWrittenError(f"the log ends at offset {fetched.end}")
        raise NotNowError(
            f"broker {fetched.broker} gives nothing at offset {position}, though the log ends at"
            f" {fetched.end}"
        )

    def _group(self, fetched: Fetched, front: BatchFront, position: int) -> Group:
        data = fetched.records[: front.size_bytes]
        topic, partition = self._piece.partition.topic_partition
        name = f"broker {fetched.broker}, {self._partition} from offset {position}"
        keep = Keep(
            max(position, self._piece.first),
            self._piece.last,
            AbortedLookup(aborted_ranges(fetched.aborted, data)),
        )
        return Group(data, Origin(topic, partition, name, 0), keep)

    def _lose(self, first: int, last: int, reason: str) -> None:
        self._rule.apply(self._piece.partition.topic_partition, first, last, reason)

    def _retrying(self, call: Callable[[], T]) -> T:
        retry_s = self._limits.retry_s

        def patience_s(error: BaseException) -> float:
            return min(_GONE_S, retry_s) if isinstance(error, TopicDeletedError) else retry_s

        try:
            return self._progress.retrying(NotNowError, patience_s)(call)
        except (_NotWrittenError, TopicDeletedError):
            raise
        except NotNowError as error:
            raise ClusterError(
                f"{self._partition}: nothing from the brokers for {retry_s:.0f} s: {error}"
            ) from error
