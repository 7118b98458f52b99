"""What becomes of one batch when its log is cleaned: kept, thinned out, emptied, dropped. Pure.

Offsets, sequences and the last offset of a batch never change, so that producers and readers find
it as before. A batch is kept without records where it tells the newest sequence of a producer, or
where the cleaned part ends. Tombstones, and markers that are needed no more, get a delete horizon
when they are first met, and go once that has passed.

DIFFERS: Kafka writes every record that stays anew, relative to the first of them. Here their bytes
are cut out of the old batch, whose base timestamp stays; readers see the same.

Source: KIP-98, KIP-534; Apache Kafka 4.3 for the order of the rules.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

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
from kafka_protocol.records.records import iter_records
from local_log.cleaner.offset_map import OffsetMap
from local_log.cleaner.record_walk import (
    Kept,
    largest_timestamp_delta,
    moved_base_timestamp,
    select,
    whole_records,
)
from local_log.cleaner.transactions import Transactions
from local_log.config import LONG_MAX
from local_log.producers.last_batches import LastBatch

_KEPT_FLAGS_OF_EMPTY: Final = ~(CODEC_MASK | DELETE_HORIZON_FLAG)
_MARKER_KEY = Struct(">hh")

_Chunk = tuple[bytes, Kept]
"""Some whole records of a batch, inflated, and which of them stay."""


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """What is the same for all batches of a pass.

    Attributes:
        now_ms: wall clock.
        delete_retention_ms: so long after they are first met tombstones stay.
        round_end: where the cleanable part ends (exclusive): the batch before it is kept.
        producers: by producer id.
    """

    now_ms: int
    delete_retention_ms: int
    round_end: int
    producers: Mapping[int, LastBatch] = field(default_factory=dict)


class Written(NamedTuple):
    """A batch that goes into the new segment.

    Attributes:
        header: as it is written.
        data: the whole batch.
    """

    header: BatchHeader
    data: Buffer


def marker_kind(batch: Buffer, header: BatchHeader) -> int | None:
    """The type of a control batch's record, -1 where it is none of a transaction's; None: empty.

    Raises:
        InvalidRecordError: the records contradict themselves.
    """
    if not header.record_count:
        return None
    for record in iter_records(batch):
        try:
            return int(_MARKER_KEY.unpack_from(record.key or b"")[1])
        except struct_error:
            return -1
    return None


class BatchFilter:
    """Decides for one batch after the other, in the order of the log."""

    __slots__ = ("_facts", "_newest", "transactions")

    def __init__(self, facts: FilterFacts, newest: OffsetMap, transactions: Transactions) -> None:
        self._facts, self._newest = facts, newest
        self.transactions = transactions

    def written(self, header: BatchHeader, batch: Buffer) -> Written | None:
        """What of a batch is written; None: nothing.

        Args:
            header: of the batch.
            batch: all its bytes, the checksum judged.

        Raises:
            InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError: it cannot be opened.
        """
        if header.is_control:
            return self._control(header, batch)
        if self.transactions.data(header):
            return self._emptied(header)
        if not header.record_count:
            return self._emptied(header)
        return self._data(header, batch)

    def _control(self, header: BatchHeader, batch: Buffer) -> Written | None:
        is_needless = self.transactions.marker(header, marker_kind(batch, header))
        if not header.record_count:
            return self._emptied(header)
        if not is_needless:
            return Written(header, batch)
        if header.has_delete_horizon:
            is_over = header.base_timestamp <= self._facts.now_ms
            return self._emptied(header) if is_over else Written(header, batch)
        data = decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
        kept = Kept([(0, len(data))], header.record_count, has_tombstones=False)
        return self._rewritten(header, [(data, kept)], kept.number, horizon=True)

    def _data(self, header: BatchHeader, batch: Buffer) -> Written | None:
        has_horizon = header.has_delete_horizon
        is_over = has_horizon and header.base_timestamp <= self._facts.now_ms
        body = memoryview(batch)[HEADER_SIZE:]
        chunks = number = 0
        has_tombstones, chunk = False, None
        for chunk in self._selected(header, body, is_over):
            chunks += 1
            number += chunk[1].number
            has_tombstones |= chunk[1].has_tombstones
        if not number:
            return self._emptied(header)
        wants_horizon = has_tombstones and not has_horizon
        if number == header.record_count and not wants_horizon:
            return Written(header, batch)
        assert chunk is not None, "a batch with records has a chunk"
        # What came in several chunks was not kept: it is inflated once more.
        kept = [chunk] if chunks == 1 else self._selected(header, body, is_over)
        return self._rewritten(header, kept, number, horizon=wants_horizon)

    def _selected(self, header: BatchHeader, body: Buffer, is_over: bool) -> Iterator[_Chunk]:
        for data, count in whole_records(inflated(header.codec, body), header.record_count):
            yield (
                data,
                select(data, count, header.base_offset, self._newest, drops_tombstones=is_over),
            )

    def _emptied(self, header: BatchHeader) -> Written | None:
        """The header alone, where the log needs it: None where it does not."""
        if header.next_offset != self._facts.round_end and not self._is_last_of_producer(header):
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
        last = self._facts.producers.get(header.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _rewritten(
        self, header: BatchHeader, chunks: Iterable[_Chunk], count: int, *, horizon: bool
    ) -> Written:
        base, attributes, shift = header.base_timestamp, header.attributes, 0
        if horizon:
            base = min(self._facts.now_ms + self._facts.delete_retention_ms, LONG_MAX)
            attributes |= DELETE_HORIZON_FLAG
            shift = header.base_timestamp - base
        is_timed = not header.is_log_append_time and count != header.record_count
        latest: list[int] = []

        def records() -> Iterator[bytes]:
            for data, kept in chunks:
                if not kept.number:
                    continue
                if is_timed:
                    latest.append(largest_timestamp_delta(data, kept.spans))
                if horizon:
                    yield moved_base_timestamp(data, kept.spans, shift)
                else:
                    yield b"".join(data[start:end] for start, end in kept.spans)

        pieces: Iterable[bytes] = records()
        size_bytes = None
        if isinstance(chunks, list):
            pieces = list(pieces)
            size_bytes = sum(map(len, pieces))
        packed = deflated(header.codec, pieces, level=None, size_bytes=size_bytes)
        body = b"".join(packed)
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


def _sealed(header: BatchHeader, records: bytes) -> Written:
    batch = bytearray(pack_header(header))
    batch += records
    crc = write_crc(batch, 0, len(batch))
    return Written(header._replace(crc=crc), batch)
