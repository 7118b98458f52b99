"""State of a partition's producers: duplicates, gaps, fenced epochs, open transactions.

In memory only; `snapshots` keeps it on disk. Pure: batches come in as headers, in the order of
their offsets. Source: KIP-98; Apache Kafka 4.3, ProducerStateManager and ProducerAppendInfo.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafka_protocol.files.producer_snapshot import ProducerEntry
from kafka_protocol.records.batch import TRANSACTIONAL_FLAG, BatchHeader
from local_log.errors import InvalidProducerEpoch, OutOfOrderSequence

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = 2**31 - 1
_SEQUENCES = 2**31
NO_SEQUENCE = -1
NO_EPOCH = -1
SILENT_MS = 3_600_000
"""Far above the longest wait of clients for an answer (`delivery.timeout.ms`, 2 min)."""
GIVEN_ID_MAX = 2**62
"""Upper bound of allocated producer ids; clients may write any id, also a higher one."""


class BatchMeta(NamedTuple):
    """One appended batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record; sequences wrap from 2147483647 to 0."""
        return (self.last_sequence - self.offset_delta) % _SEQUENCES


class ProducerState:
    """State of one producer id.

    Attributes:
        is_silent: No batch for `SILENT_MS`, so that none is in flight.
        batches: Fields of a `BatchMeta` for the newest batches, oldest first. The garbage
            collector, whose passes hold the event loop, does not track plain tuples of numbers: a
            log may have 100,000 producers.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "generation",
        "is_silent",
        "silent_since_ms",
        "timestamp",
    )

    def __init__(self, epoch: int, generation: int = 0) -> None:
        self.epoch = epoch
        self.generation = generation
        self.silent_since_ms: int | None = None  # None: a batch came since the last expiry pass
        self.is_silent = False
        self.batches: tuple[tuple[int, int, int, int], ...] = ()
        self.coordinator_epoch = -1
        self.current_txn_first_offset: int | None = None
        self.timestamp = -1

    def copy(self, generation: int) -> "ProducerState":
        """Return an equal state of another generation."""
        twin = ProducerState(self.epoch, generation)
        twin.silent_since_ms, twin.is_silent = self.silent_since_ms, self.is_silent
        twin.batches = self.batches
        twin.coordinator_epoch = self.coordinator_epoch
        twin.current_txn_first_offset = self.current_txn_first_offset
        twin.timestamp = self.timestamp
        return twin

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record, -1 if this epoch has only markers."""
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    def heard(self, timestamp: int) -> None:
        """Note the time of an appended batch or marker."""
        self.timestamp, self.silent_since_ms, self.is_silent = timestamp, None, False

    def remember(
        self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None:
        """Add a batch; the oldest one is dropped."""
        newest = (last_sequence, last_offset, offset_delta, timestamp)
        self.batches = (*self.batches[1 - BATCHES_REMEMBERED :], newest)


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended; all offsets inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStates:
    """All producers of one partition, up to `end_offset` (exclusive).

    Attributes:
        highest_id: Highest id up to `GIVEN_ID_MAX` ever seen, also of removed producers; -1:
            none.
        forgotten: Number of expired producers.
    """

    __slots__ = (
        "_generation",
        "_ongoing",
        "_unreplicated",
        "end_offset",
        "forgotten",
        "highest_id",
        "producers",
    )

    def __init__(self) -> None:
        self.producers: dict[int, ProducerState] = {}
        self.end_offset = 0
        self.highest_id = -1
        self.forgotten = 0
        # States of an earlier generation belong to a snapshot being written: they are replaced, not
        # changed.
        self._generation = 0
        # First offset -> producer id. Offsets rise, so the first key is the smallest.
        self._ongoing: dict[int, int] = {}
        # First offset -> marker offset, until the marker is below the high watermark.
        self._unreplicated: dict[int, int] = {}

    # -- decisions ------------------------------------------------------------------------------

    def check(self, header: BatchHeader, log_end: int) -> BatchMeta | None:
        """Validate a client's batch of a producer with an id.

        DIFFERS: before 4.5 Kafka lets an unknown producer begin with any sequence, also in a log
        that never had a record. If earlier batches are late, they are then refused permanently
        (KAFKA-15591).

        Args:
            header: Of the batch.
            log_end: Offset of the batch; only a log that never had a record ends at 0.

        Returns:
            The earlier append of which this is an exact duplicate, or None if it is new.

        Raises:
            InvalidProducerEpoch: The producer is fenced.
            OutOfOrderSequence: Records before it are missing.
        """
        state = self.producers.get(header.producer_id)
        sequence = header.base_sequence
        if state is None:
            if log_end == 0 and sequence != 0:
                raise OutOfOrderSequence(
                    producer_id=header.producer_id,
                    epoch=header.producer_epoch,
                    asked=sequence,
                    last=NO_SEQUENCE,
                )
            return None  # unknown (expired, or log start moved): any sequence may begin
        if header.producer_epoch == state.epoch:
            last = state.last_sequence
            if sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX):
                return None
            delta = header.last_offset_delta
            for batch in map(BatchMeta._make, state.batches):
                if batch.offset_delta == delta and batch.first_sequence == sequence:
                    return batch
            if state.epoch == NO_EPOCH:
                return None
            raise OutOfOrderSequence(
                producer_id=header.producer_id, epoch=state.epoch, asked=sequence, last=last
            )
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                producer_id=header.producer_id, asked=header.producer_epoch, current=state.epoch
            )
        if sequence != 0 and state.epoch != NO_EPOCH:
            raise OutOfOrderSequence(
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                asked=sequence,
                last=NO_SEQUENCE,
            )
        return None

    # -- changes --------------------------------------------------------------------------------

    def append_data(self, header: BatchHeader, base_offset: int) -> None:
        """Add a data batch of a producer with an id."""
        producer_id = header.producer_id
        state = self.producers.get(producer_id)
        if state is None:
            state = self._add(producer_id, header.producer_epoch)
        elif state.generation != self._generation:
            state = self._renew(producer_id, state)
        if state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches = ()
        delta = header.last_offset_delta
        last_sequence = (header.base_sequence + delta) % _SEQUENCES
        timestamp = header.max_timestamp
        state.remember(last_sequence, base_offset + delta, delta, timestamp)
        state.heard(timestamp)
        if header.attributes & TRANSACTIONAL_FLAG and state.current_txn_first_offset is None:
            state.current_txn_first_offset = base_offset
            self._ongoing[base_offset] = producer_id

    def append_marker(
        self, header: BatchHeader, *, is_commit: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """End a transaction; None if the producer had none open."""
        state = self.producers.get(header.producer_id)
        if state is None:
            state = self._add(header.producer_id, header.producer_epoch)
        elif state.generation != self._generation:
            state = self._renew(header.producer_id, state)
        if state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches = ()
        state.coordinator_epoch = coordinator_epoch
        state.heard(header.max_timestamp)
        first = state.current_txn_first_offset
        state.current_txn_first_offset = None
        if first is None:
            return None
        # In this order, so that a concurrent read finds the transaction in one of them.
        self._unreplicated[first] = header.base_offset
        self._ongoing.pop(first, None)
        return CompletedTransaction(header.producer_id, first, header.base_offset, not is_commit)

    def _add(self, producer_id: int, epoch: int) -> ProducerState:
        if self.highest_id < producer_id <= GIVEN_ID_MAX:
            self.highest_id = producer_id
        state = self.producers[producer_id] = ProducerState(epoch, self._generation)
        return state

    def _renew(self, producer_id: int, state: ProducerState) -> ProducerState:
        state = self.producers[producer_id] = state.copy(self._generation)
        return state

    def last_stable_after(self, done: CompletedTransaction) -> int:
        """Return the last stable offset after `done`.

        The next open transaction, or the end of `done`.
        """
        for first in self._ongoing:
            if first != done.first_offset:
                return first
        return done.last_offset + 1

    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open, or whose marker is not replicated yet."""
        if not self._ongoing and not self._unreplicated:
            return None
        return min([*self._ongoing, *self._unreplicated])

    def raise_high_watermark(self, high_watermark: int) -> None:
        """Drop ended transactions whose marker is below the high watermark."""
        if self._unreplicated:
            ended = list(self._unreplicated.items())
            done = [first for first, marker in ended if marker < high_watermark]
            for first in done:
                del self._unreplicated[first]

    def has_open_transactions_before(self, offset: int) -> bool:
        """True if a transaction that began before `offset` is still open."""
        return any(first < offset for first in self._ongoing)

    def expire(self, now_ms: int, expiration_ms: int, among: Iterable[int] | None = None) -> int:
        """Remove producers without a batch for `expiration_ms` and without an open transaction.

        Silence is counted by the wall clock from pass to pass. DIFFERS: Kafka counts from the
        newest record's timestamp. So it removes a producer that writes old records, and appends its
        retry after a broken connection a second time.

        Args:
            now_ms: Wall clock.
            expiration_ms: Of silence.
            among: Only these ids, some of which may be unknown; None: all.

        Returns:
            Number of removed producers.
        """
        gone = []
        for producer_id in self.producers if among is None else among:
            state = self.producers.get(producer_id)
            if state is None:
                continue
            if state.silent_since_ms is None:
                state.silent_since_ms = now_ms
            elif (
                state.current_txn_first_offset is None
                and now_ms - state.silent_since_ms >= expiration_ms
            ):
                gone.append(producer_id)
            elif now_ms - state.silent_since_ms >= SILENT_MS:
                state.is_silent = True
        for producer_id in gone:
            del self.producers[producer_id]
        self.forgotten += len(gone)
        return len(gone)

    def clear(self, end_offset: int) -> None:
        """Remove all producers, for a log that is empty up to `end_offset`."""
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.end_offset = end_offset

    # -- to and from snapshots ------------------------------------------------------------------

    def load(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        """Take the state from a snapshot."""
        self.clear(end_offset)
        for entry in entries:
            state = self.producers.get(entry.producer_id)
            if state is None:
                state = self._add(entry.producer_id, entry.epoch)
            if entry.last_offset >= 0:
                state.remember(
                    entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
                )
            state.timestamp = entry.timestamp
            state.coordinator_epoch = entry.coordinator_epoch
            first = entry.current_txn_first_offset
            state.current_txn_first_offset = None if first < 0 else first
        open_ones = (
            (state.current_txn_first_offset, producer_id)
            for producer_id, state in self.producers.items()
            if state.current_txn_first_offset is not None
        )
        self._ongoing.update(sorted(open_ones))

    def dump(self) -> list[ProducerEntry]:
        """Return the entries of a snapshot of the present state."""
        return list(entries_of(self.producers))

    def freeze(self) -> dict[int, ProducerState]:
        """Return all producers as they are now; later changes do not affect them."""
        self._generation += 1
        return self.producers.copy()


def entries_of(producers: Mapping[int, ProducerState]) -> Iterator[ProducerEntry]:
    """Yield the entries of a snapshot: the remembered batches, the oldest of a producer first.

    DIFFERS: Kafka keeps only the newest batch of each producer. A new leader that starts from such
    a snapshot does not recognise a duplicate of an earlier batch. The client then writes it again
    under another epoch. Kafka can read these files: it takes the last entry of a producer, and
    drops entries with old timestamps. So earlier entries have no later timestamps. For a silent
    producer the newest batch is enough.
    """
    for producer_id, state in producers.items():
        epoch, marked_by, first = (
            state.epoch,
            state.coordinator_epoch,
            state.current_txn_first_offset,
        )
        batches = state.batches or ((NO_SEQUENCE, -1, 0, state.timestamp),)
        for sequence, last, delta, timestamp in () if state.is_silent else batches[:-1]:
            at_ms = min(timestamp, state.timestamp)
            yield ProducerEntry(producer_id, epoch, sequence, last, delta, at_ms, marked_by, -1)
        sequence, last, delta, _ = batches[-1]
        at_ms, first = state.timestamp, -1 if first is None else first
        yield ProducerEntry(producer_id, epoch, sequence, last, delta, at_ms, marked_by, first)
