"""Encodes a decision for the log, and checks that the bytes can be read back, before the append.

Every later start, snapshot and node reads an appended record; a record that they cannot read ends
the cluster. So a decision is encoded whole, and decoded again from those bytes, with all limits of
the decoder. Then it is replayed on a temporary loader, and only then appended, at once. The image
is made of the decoded records, so this node and a reader of the log have the same image.

Pure: no disk, no clock.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from kafka_protocol.errors import ErrorCode, InvalidRecordError, KafkaError, MalformedMessageError
from kafka_protocol.records.batch import HEADER_SIZE
from metadata_topic.controller.result import Decided, result_of
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import BrokenMetadataLogError, Provenance
from metadata_topic.image.records import (
    RECORD_WORK,
    MetadataRecord,
    UnknownMetadataRecordError,
    encode_record,
    make,
)
from metadata_topic.quorum.log.batches import (
    note_flushed_end,
    read_records,
    value_batch,
    whole_batches,
)
from runtime.work import Pace, Steps, stepwise

R = TypeVar("R")

_RECORD_OVERHEAD: Final = 19  # upper bound of the bytes around the value of a record without key
_NOT_ENCODABLE: Final = (
    struct.error,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MalformedMessageError,
)


class UnwritableDecision(KafkaError):
    """The metadata log cannot hold a record of the decision; nothing was written."""

    code = ErrorCode.INVALID_REQUEST


class ContradictoryDecision(KafkaError):
    """A decision contradicts its own image; nothing was written. A bug of ours."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Position and epoch of the next batches.

    Attributes:
        base_offset: Of the first record.
        epoch: Of the leader.
        timestamp_ms: Of all records.
        flushed_end: First offset (exclusive end) that is not flushed now.
    """

    base_offset: int
    epoch: int
    timestamp_ms: int
    flushed_end: int


@dataclass(frozen=True, slots=True)
class PreparedDecision:
    """Encoded decision, and a loader with its effect.

    Attributes:
        data: One batch, or a metadata transaction over several, contiguous.
        first_offset: Of the decision's first record (inclusive), after our Begin record if any.
        loader: Has the image before, and everything in `data`.
    """

    data: bytearray
    first_offset: int
    loader: ImageLoader


@stepwise
def decide_and_prepare(
    decide: Callable[[MetadataImage], Decided[R]],
    image: MetadataImage,
    place: BatchPlace,
    *,
    batch_bytes_max: int,
) -> Steps[tuple[R, PreparedDecision | None]]:
    """Take a decision on the newest image and encode it, in steps.

    A registration has a broker epoch that is an offset of its own records. If the decision becomes
    a transaction, its records begin one offset later. So it is taken once more, on an image that
    ends one offset later.

    Returns:
        The response, and the bytes to append; None if there are no records.

    Raises:
        KafkaError: From `decide` or `prepare_decision`.
    """
    result = yield from result_of(decide(image))
    if not result.records:
        return result.response, None
    prepare = partial(
        prepare_decision.steps, base=image, place=place, batch_bytes_max=batch_bytes_max
    )
    registered = _broker_epochs(result.records)
    names_its_offset = bool(registered)
    response, records = result.response, deque(result.records)
    del result
    prepared = yield from prepare(_drained(records))
    if prepared.first_offset != place.base_offset and names_its_offset:
        at = image.provenance
        shifted = replace(image, provenance=replace(at, offset=at.offset + 1))
        result = yield from result_of(decide(shifted))
        response, registered = result.response, _broker_epochs(result.records)
        prepared = yield from prepare(result.records, as_transaction=True)
    _check_broker_epochs(registered, place.base_offset, prepared.first_offset)
    return response, prepared


def _drained(records: deque[MetadataRecord]) -> Iterator[MetadataRecord]:
    """Release each record when it is taken: to free very many of them at once takes long, too."""
    while records:
        yield records.popleft()


def _broker_epochs(records: Sequence[MetadataRecord]) -> list[tuple[int, int]]:
    """Positions of registrations among the records, with their broker epochs."""
    return [
        (number, record.value.broker_epoch)
        for number, record in enumerate(records)
        if record.name == "RegisterBrokerRecord"
    ]


def abort_batch(place: BatchPlace) -> tuple[MetadataRecord, bytearray]:
    """Make the record that aborts an open transaction, and its batch."""
    abort = make("AbortTransactionRecord", reason="the controller restarted")
    batch = value_batch(
        [encode_record(abort)],
        base_offset=place.base_offset,
        epoch=place.epoch,
        timestamp_ms=place.timestamp_ms,
    )
    note_flushed_end(batch, place.flushed_end)
    return abort, batch


@stepwise
def prepare_decision(
    records: Iterable[MetadataRecord],
    *,
    base: MetadataImage,
    place: BatchPlace,
    batch_bytes_max: int,
    as_transaction: bool = False,
) -> Steps[PreparedDecision]:
    """Encode a decision into batches, in steps, and check that they can be read and replayed.

    One batch is written whole, or cut on the next start. Records that do not fit into one become a
    metadata transaction over several, so they take effect together or not at all. Bootstrap records
    are a transaction already.

    Args:
        records: At least one.
        base: The image of the decision; ends where the records begin.
        place: Position of the first batch.
        batch_bytes_max: Limit of one batch.
        as_transaction: Make a transaction even if the records fit into one batch.

    Raises:
        UnwritableDecision: A record cannot be encoded, is too large, or cannot be read back.
        ContradictoryDecision: The records cannot be replayed on `base`.
    """
    assert place.base_offset == base.provenance.end_offset, "the image ends where the log does"
    values: list[bytes] = []
    pace = Pace()
    is_transaction = False
    for record in records:
        is_transaction |= record.name == "BeginTransactionRecord"
        values.append(_encoded(record))
        if pace.is_step_over(RECORD_WORK):
            yield
    runs = list(pack(values, batch_bytes_max))
    first_offset = place.base_offset
    if not is_transaction and (as_transaction or len(runs) > 1):
        begin = encode_record(make("BeginTransactionRecord", name="large change"))
        runs = [[begin], *runs, [encode_record(make("EndTransactionRecord"))]]
        first_offset += 1
    data, offset = bytearray(), place.base_offset
    for run in runs:
        batch = yield from value_batch.steps(
            run, base_offset=offset, epoch=place.epoch, timestamp_ms=place.timestamp_ms
        )
        note_flushed_end(batch, place.flushed_end)
        data += batch
        offset += len(run)
    loader = yield from _replayed(data, base)
    return PreparedDecision(data, first_offset, loader)


def pack(values: Sequence[bytes], batch_bytes_max: int) -> Iterator[list[bytes]]:
    """Divide record values into runs for batches of at most `batch_bytes_max` bytes each.

    Raises:
        UnwritableDecision: A single value exceeds the limit of a batch.
    """
    run: list[bytes] = []
    size_bytes = HEADER_SIZE
    for value in values:
        more_bytes = len(value) + _RECORD_OVERHEAD
        if HEADER_SIZE + more_bytes > batch_bytes_max:
            raise UnwritableDecision(
                f"a metadata record of {len(value)} bytes does not fit in a batch of "
                f"{batch_bytes_max} bytes: ask for less in one record"
            )
        if run and size_bytes + more_bytes > batch_bytes_max:
            yield run
            run, size_bytes = [], HEADER_SIZE
        run.append(value)
        size_bytes += more_bytes
    yield run


def _encoded(record: MetadataRecord) -> bytes:
    try:
        return encode_record(record)
    except _NOT_ENCODABLE as error:
        raise UnwritableDecision(f"a {record.name} cannot be written: {error}") from error


def _replayed(data: bytearray, base: MetadataImage) -> Steps[ImageLoader]:
    loader, pace = ImageLoader(base), Pace()
    try:
        for position, header in whole_batches(data):
            for record in read_records(data, position):
                loader.add(record)
                if pace.is_step_over(RECORD_WORK):
                    yield
            yield from loader.end_of_batch_steps(
                Provenance(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
            )
    except (UnknownMetadataRecordError, InvalidRecordError, MalformedMessageError) as error:
        raise UnwritableDecision(f"the metadata log could not read this back: {error}") from error
    except BrokenMetadataLogError as error:
        raise ContradictoryDecision(f"the change contradicts the metadata: {error}") from error
    return loader


def _check_broker_epochs(
    registered: Sequence[tuple[int, int]], base_offset: int, first_offset: int
) -> None:
    """Check that a new broker epoch is an offset of its own decision, above all older ones."""
    for number, epoch in registered:
        allowed = (first_offset, first_offset + number)
        assert epoch < base_offset or epoch in allowed, (
            f"broker epoch {epoch} of a registration that is written at {allowed}"
        )
