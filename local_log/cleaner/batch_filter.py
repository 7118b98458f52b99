"""Decides how cleaning changes one batch: unchanged, thinned out, emptied or dropped. Pure.

Offsets, sequences and the last offset of a batch never change, so producers and readers find it as
before. A batch is kept without records if it has the newest sequence of a producer, or ends the
cleaned part. Tombstones, and markers that are no longer needed, get a delete horizon in the first
pass that reads them, and are dropped after it.

DIFFERS: Kafka writes every kept record again, relative to the first of them. Here their bytes are
cut out of the old batch, whose base timestamp stays; readers see the same records.

A marker may be dropped once no batch of its transaction precedes it: then no reader needs the
outcome of the transaction.

Source: KIP-98, KIP-534; Apache Kafka 4.3 for the order of the rules.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_protocol.errors import InvalidRecordError
from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    pack_header,
    write_crc,
)
from kafka_protocol.records.compression import decompress, deflated, inflated
from kafka_protocol.records.control import ControlType, control_type
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire.primitives import encode_zigzag, read_zigzag
from local_log.cleaner.offset_map import OffsetMap, records_in, whole_records
from local_log.config import LONG_MAX
from local_log.producers.last_batches import LastBatch

_KEPT_FLAGS_OF_EMPTY: Final = ~(CODEC_MASK | DELETE_HORIZON_FLAG)
_LONG_MIN: Final = -(2**63)


class Transactions:
    """State of transactions during one walk over a log.

    Attributes:
        kept: Entries for the transaction index of the segment being written: aborted transactions
            with batches in it. The writer removes them.
    """

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Begin a walk.

        Args:
            aborted: All aborted transactions in the range, in any order.
        """
        self._coming = [(entry.first_offset, entry) for entry in aborted]
        heapq.heapify(self._coming)
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    @property
    def undecided(self) -> frozenset[int]:
        """Producers with data taken as committed, whose marker was not read yet."""
        return frozenset(self._committed)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, entry = heapq.heappop(self._coming)
            self._aborted.setdefault(entry.producer_id, (entry, False))

    def data(self, header: BatchHeader) -> bool:
        """Take a data batch; returns whether it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def marker(self, header: BatchHeader, kind: int | None) -> bool:
        """Take a control batch; returns whether it is no longer needed.

        Args:
            header: Of the batch.
            kind: Type of its record, None if it was emptied before.

        Raises:
            InvalidRecordError: It aborts data that no index lists and that was taken as committed.
        """
        self._begin_up_to(header.last_offset)
        if kind is None:
            self._committed.discard(header.producer_id)  # it ended the transaction before it
            return True
        if kind == ControlType.ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is not None and found[1]:
                self.kept.append(found[0])
                return False
            if found is None and header.producer_id in self._committed:
                raise InvalidRecordError(
                    f"producer {header.producer_id} aborted what is in no transaction index"
                )
            return True
        if kind == ControlType.COMMIT:
            was_met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_met
        return False


def marker_kind(batch: Buffer, header: BatchHeader) -> int | None:
    """Return the type of a control batch's record: -1 without such a key, None if it is empty.

    Raises:
        InvalidRecordError: The records contradict themselves.
    """
    if not header.record_count:
        return None
    record = next(iter_records(batch))
    try:
        return control_type(record)
    except InvalidRecordError:
        return -1


class Written(NamedTuple):
    """A batch for the new segment.

    Attributes:
        header: The new header.
        data: The whole batch.
    """

    header: BatchHeader
    data: Buffer


class _Kept(NamedTuple):
    """Kept records of a chunk.

    Attributes:
        data: The chunk, inflated.
        spans: First byte (inclusive) and end (exclusive) of runs of records.
        number: Count of kept records.
        has_tombstones: At least one kept record has no value.
    """

    data: bytes
    spans: list[tuple[int, int]]
    number: int
    has_tombstones: bool


@dataclass(slots=True)
class BatchFilter:
    """Decides on one batch after the other, in the order of the log.

    Attributes:
        newest: Newest offset of each key.
        transactions: Of this walk.
        now_ms: Wall clock.
        delete_retention_ms: How long tombstones are kept after the pass that first reads them.
        round_end: End of the cleanable part (exclusive); the batch before it is kept.
        producers: Last batch by producer id.
    """

    newest: OffsetMap
    transactions: Transactions
    now_ms: int
    delete_retention_ms: int
    round_end: int
    producers: Mapping[int, LastBatch] = field(default_factory=dict)
    _epoch: int = 0  # of the batches so far
    _begins_epoch: bool = False

    def written(self, header: BatchHeader, batch: Buffer) -> Written | None:
        """Return the batch to write; None to drop it.

        Args:
            header: Of the batch.
            batch: All its bytes, with a valid checksum.

        Raises:
            InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError: It cannot be inflated.
        """
        self._begins_epoch = header.partition_leader_epoch > self._epoch
        self._epoch = max(self._epoch, header.partition_leader_epoch)
        if header.is_control:
            return self._control(header, batch)
        if self.transactions.data(header) or not header.record_count:
            return self._emptied(header)
        return self._data(header, batch)

    def _control(self, header: BatchHeader, batch: Buffer) -> Written | None:
        is_needless = self.transactions.marker(header, marker_kind(batch, header))
        if not header.record_count or (is_needless and self._is_over(header)):
            return self._emptied(header)
        if header.has_delete_horizon or not is_needless:
            return Written(header, batch)
        data = decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
        kept = _Kept(data, [(0, len(data))], header.record_count, has_tombstones=False)
        return self._rewritten(header, [kept], kept.number, horizon=True)

    def _data(self, header: BatchHeader, batch: Buffer) -> Written | None:
        chunks = number = 0
        has_tombstones, chunk = False, None
        for chunk in self._selected(header, batch):
            chunks += 1
            number += chunk.number
            has_tombstones |= chunk.has_tombstones
        if not number:
            return self._emptied(header)
        wants_horizon = has_tombstones and not header.has_delete_horizon
        if number == header.record_count and not wants_horizon:
            return Written(header, batch)
        assert chunk is not None, "a batch with records has a chunk"
        # Several chunks were not kept in memory: inflate the batch again.
        kept = [chunk] if chunks == 1 else self._selected(header, batch)
        return self._rewritten(header, kept, number, horizon=wants_horizon)

    def _is_over(self, header: BatchHeader) -> bool:
        """True if the delete horizon of the batch has passed."""
        return header.has_delete_horizon and header.base_timestamp <= self.now_ms

    def _selected(self, header: BatchHeader, batch: Buffer) -> Iterator[_Kept]:
        """Select the kept records of each chunk: the newest of each key, and all beyond the map.

        Within the map's range records without a key are dropped, and so are tombstones after their
        delete horizon.
        """
        find, latest = self.newest.offsets.get, self.newest.latest_offset
        base_offset, drops_tombstones = header.base_offset, self._is_over(header)
        pieces = inflated(header.codec, memoryview(batch)[HEADER_SIZE:])
        for data, count in whole_records(pieces, header.record_count):
            spans: list[tuple[int, int]] = []
            kept, has_tombstones, span_start = 0, False, -1
            for first, offset_delta, key, has_value in records_in(data, count):
                offset = base_offset + offset_delta
                stays = offset > latest or (
                    key is not None
                    and offset >= find(key, -1)
                    and (has_value or not drops_tombstones)
                )
                if stays:
                    kept += 1
                    has_tombstones |= not has_value
                    if span_start < 0:
                        span_start = first
                elif span_start >= 0:
                    spans.append((span_start, first))
                    span_start = -1
            if span_start >= 0:
                spans.append((span_start, len(data)))
            yield _Kept(data, spans, kept, has_tombstones)

    def _emptied(self, header: BatchHeader) -> Written | None:
        """Return the header alone if the log needs it, None otherwise.

        DIFFERS: the first batch of a leader epoch stays. A follower takes the start of an epoch
        from its batches. With a later start it could, as leader, let a replica keep uncommitted
        records of the epoch before.
        """
        is_needed = self._begins_epoch or header.next_offset == self.round_end
        if not is_needed and not self._is_last_of_producer(header):
            return None
        empty = header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD,
            attributes=header.attributes & _KEPT_FLAGS_OF_EMPTY,
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        )
        return _sealed(empty, b"")

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id < 0:
            return False
        last = self.producers.get(header.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _rewritten(
        self, header: BatchHeader, chunks: Iterable[_Kept], count: int, *, horizon: bool
    ) -> Written:
        base, attributes = header.base_timestamp, header.attributes
        if horizon:
            base = min(self.now_ms + self.delete_retention_ms, LONG_MAX)
            attributes |= DELETE_HORIZON_FLAG
        is_timed = not header.is_log_append_time and count != header.record_count
        latest: list[int] = []

        def records() -> Iterator[bytes]:
            for kept in chunks:
                if not kept.number:
                    continue
                if is_timed:
                    latest.append(max(delta for delta, *_ in _timestamps(kept)))
                if horizon:
                    yield _moved_base_timestamp(kept, header.base_timestamp - base)
                else:
                    yield b"".join(kept.data[start:end] for start, end in kept.spans)

        pieces: Iterable[bytes] = records()
        size_bytes = None
        if isinstance(chunks, list):
            pieces = list(pieces)
            size_bytes = sum(map(len, pieces))
        body = b"".join(deflated(header.codec, pieces, level=None, size_bytes=size_bytes))
        largest = header.base_timestamp + max(latest) if latest else header.max_timestamp
        return _sealed(
            header._replace(
                batch_length=HEADER_SIZE - LOG_OVERHEAD + len(body),
                attributes=attributes,
                base_timestamp=base,
                max_timestamp=largest,
                record_count=count,
            ),
            body,
        )


def _timestamps(kept: _Kept) -> Iterator[tuple[int, int, int, int]]:
    """Timestamp delta of each kept record, with positions of its attributes, next field and end."""
    for start, end in kept.spans:
        pos = start
        while pos < end:
            length, attributes = read_zigzag(kept.data, pos)
            delta, rest = read_zigzag(kept.data, attributes + 1, 10)
            pos = attributes + length
            yield delta, attributes, rest, pos


def _moved_base_timestamp(kept: _Kept, shift: int) -> bytes:
    """Return the kept records for a batch whose base timestamp is `shift` ms lower.

    Raises:
        InvalidRecordError: A delta exceeds its range.
    """
    out = bytearray()
    for delta, attributes, rest, stop in _timestamps(kept):
        if delta + shift < _LONG_MIN:
            raise InvalidRecordError("a timestamp does not fit in the batch")
        stamp = encode_zigzag(delta + shift)
        out += encode_zigzag(1 + len(stamp) + stop - rest)
        out.append(kept.data[attributes])
        out += stamp
        out += kept.data[rest:stop]
    return bytes(out)


def _sealed(header: BatchHeader, records: bytes) -> Written:
    batch = bytearray(pack_header(header))
    batch += records
    crc = write_crc(batch, 0, len(batch))
    return Written(header._replace(crc=crc), batch)
