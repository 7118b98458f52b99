"""Checks records from a leader, and describes the sound part for the core.

A whole batch is sound if a leader of the metadata log can have written it: valid checksum, offsets
without gaps, epochs that never fall. The check ends at the first unsound batch; the batches before
it are used. A cut last batch is no fault if a whole one came before it: a server may cut at a limit
of bytes. It is fetched again, and so are batches beyond a limit of their number: an idle leader's
have 72 bytes.
"""

from dataclasses import dataclass
from typing import Final

from kafka_protocol.errors import KafkaError, MalformedMessageError
from kafka_protocol.records.batch import (
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    Buffer,
    crc32c_of,
)
from kafka_protocol.records.control import ControlType, control_type, decode_control
from kafka_protocol.records.records import iter_records
from metadata_topic.quorum.log.batches import voters_of
from metadata_topic.raft.messages import BatchFacts
from metadata_topic.raft.voters import VoterSet
from runtime.work import Pace, Steps, stepwise

_OFFSET_MAX: Final = 2**62
"""No log gets so far; above it arithmetic of offsets could exceed 64 bits."""
BATCHES_MAX: Final = 2_000
"""Limit of batches taken at once: a follower appends them on its event loop, in some 10 ms."""
_BYTES_PER_UNIT: Final = 4_000
"""Bytes whose checksum takes about one unit of work (a microsecond)."""
_BATCH_WORK: Final = 4
_CONTROL_WORK: Final = 100


@dataclass(frozen=True, slots=True)
class CheckedData:
    """The sound part of fetched records.

    Attributes:
        batches: Its batches, in order.
        data: Their bytes, contiguous.
        fault: Why the batch after it is unsound; None if there is none, or if it is only cut.
    """

    batches: tuple[BatchFacts, ...] = ()
    data: bytes = b""
    fault: str | None = None


NO_DATA: Final = CheckedData()


class _Unsound(Exception):
    """A batch that no leader can have written."""


@stepwise
def checked_prefix(data: Buffer) -> Steps[CheckedData]:
    """Find the sound prefix of `data`, in steps; raises for no content."""
    size, position, fault = len(data), 0, None
    batches: list[BatchFacts] = []
    pace = Pace()
    while position < size and len(batches) < BATCHES_MAX:
        try:
            end, facts, is_control = _next_batch(data, position, batches[-1] if batches else None)
        except _Unsound as reason:
            fault = f"{reason}, at byte {position} of {size}"
            break
        if facts is None:
            if not batches:
                fault = f"no whole batch in {size} bytes"
            break
        batches.append(facts)
        work = _BATCH_WORK + (end - position) // _BYTES_PER_UNIT
        position = end
        if pace.is_step_over(work + (_CONTROL_WORK if is_control else 0)):
            yield
    return CheckedData(tuple(batches), bytes(memoryview(data)[:position]), fault)


def _next_batch(
    data: Buffer, position: int, before: BatchFacts | None
) -> tuple[int, BatchFacts | None, bool]:
    """End, facts (None if cut) and control flag of the batch at `position`."""
    if len(data) - position < HEADER_SIZE:
        return position, None, False
    base_offset, length, epoch, magic, crc, attributes, last_delta, *_, count = HEADER.unpack_from(
        data, position
    )
    if magic != MAGIC:
        raise _Unsound(f"a batch of magic {magic}")
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise _Unsound(f"a batch of {length + LOG_OVERHEAD} bytes")
    end = position + length + LOG_OVERHEAD
    if end > len(data):
        return position, None, False
    if crc32c_of(data, position + CRC_START, end - position - CRC_START) != crc:
        raise _Unsound(f"checksum mismatch in the batch of offset {base_offset}")
    if not 0 <= base_offset <= _OFFSET_MAX or last_delta < 0 or count < 1 or epoch < 0:
        raise _Unsound(
            f"a batch of epoch {epoch} from offset {base_offset} to {base_offset + last_delta} "
            f"with {count} records"
        )
    if before is not None and base_offset != before.end_offset:
        raise _Unsound(f"offset {base_offset} follows on {before.end_offset - 1}")
    if before is not None and epoch < before.epoch:
        raise _Unsound(f"epoch {epoch} at offset {base_offset} follows on {before.epoch}")
    end_offset = base_offset + last_delta + 1
    if not attributes & CONTROL_FLAG:
        return end, BatchFacts(base_offset, end_offset, epoch), False
    level, voters = _said(data, position, base_offset)
    return end, BatchFacts(base_offset, end_offset, epoch, level, voters), True


def _said(data: Buffer, position: int, base_offset: int) -> tuple[int | None, VoterSet | None]:
    """kraft.version and voters in the control records of a batch."""
    level, voters = None, None
    try:
        for record in iter_records(data, position):
            kind = control_type(record)
            if kind == ControlType.KRAFT_VERSION:
                level = int(decode_control(record)[1].kraft_version)
            elif kind == ControlType.KRAFT_VOTERS:
                said = decode_control(record)[1]
                ids = [voter.voter_id for voter in said.voters]
                if len(set(ids)) != len(ids) or min(ids, default=0) < 0:
                    raise _Unsound(f"voters {ids} at offset {record.offset}")
                voters = voters_of(said)
    except (KafkaError, MalformedMessageError) as error:
        raise _Unsound(f"control records of offset {base_offset}: {error}") from error
    return level, voters
