"""Updates the producer state from stored batches: data by header, markers by record."""

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import CONTROL_FLAG, BatchHeader
from kafka_protocol.records.records import iter_records
from local_log.producers.state import ProducerStates

_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1


def note_batch(
    producers: ProducerStates, header: BatchHeader, read_batch: Callable[[], bytes | memoryview]
) -> AbortedTransaction | None:
    """Update the producers with a batch that is in the log.

    Args:
        producers: State up to this batch.
        header: With its final offsets.
        read_batch: Reads the whole batch; called for transaction markers only.

    Returns:
        The entry for the transaction index if the batch aborts a transaction with records.
    """
    producers.end_offset = header.base_offset + header.last_offset_delta + 1
    if header.producer_id < 0:
        return None
    if not header.attributes & CONTROL_FLAG:
        producers.append_data(header, header.base_offset)
        return None
    marker = read_marker(read_batch())
    if marker is None:
        return None
    is_commit, coordinator_epoch = marker
    done = producers.append_marker(header, is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    if done is None or not done.is_aborted:
        return None
    return AbortedTransaction(
        done.producer_id, done.first_offset, done.last_offset, producers.last_stable_after(done)
    )


def read_marker(batch: bytes | memoryview) -> tuple[bool, int] | None:
    """Decode a transaction marker.

    Returns:
        (True for a commit, epoch of the coordinator that wrote it). None for a control batch of
        another kind or without records (compaction may have emptied it).
    """
    for record in iter_records(batch):
        if record.key is None or record.value is None:
            return None
        try:
            _, kind = _MARKER_KEY.unpack_from(record.key)
            if kind not in (_ABORT, _COMMIT):
                return None
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
        except struct_error:
            return None
        return kind == _COMMIT, coordinator_epoch
    return None
