"""Refusals of a log, with the error codes that clients get."""

from kafka_protocol.errors import ErrorCode, KafkaError, TidemarkError
from local_log.refusal import RefusalFacts


class OffsetOutOfRange(KafkaError):
    """The requested offset is outside [start, end)."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, *, asked: int, start: int, end: int) -> None:
        super().__init__(f"offset {asked} is outside [{start}, {end})")
        self.asked, self.start, self.end = asked, start, end


class OffsetIsRemote(KafkaError):
    """The requested offset is at or above the log start, but only in the remote tier."""

    code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE

    def __init__(self, *, asked: int, log_start: int, local_start: int) -> None:
        super().__init__(f"offset {asked} is remote: [{log_start}, {local_start})")
        self.asked, self.log_start, self.local_start = asked, log_start, local_start


class CorruptMessage(KafkaError):
    """Checksum or framing of a batch is wrong."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(KafkaError):
    """A whole batch breaks a rule.

    Attributes:
        record_errors: (index in the batch, text) of single records, where known.
    """

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class MessageTooLarge(KafkaError):
    """A batch above `max.message.bytes`."""

    code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, *, size_bytes: int, max_bytes: int) -> None:
        super().__init__(f"batch of {size_bytes} bytes, max.message.bytes is {max_bytes}")
        self.size_bytes, self.max_bytes = size_bytes, max_bytes


class TooManyRecords(KafkaError):
    """A batch has more records than the broker decodes.

    DIFFERS: Kafka decodes any number, on a thread of its own.
    """

    code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, *, count: int, max_count: int) -> None:
        super().__init__(f"batch of {count} records, at most {max_count} are opened")
        self.count, self.max_count = count, max_count


class RecordListTooLarge(KafkaError):
    """A batch exceeds an empty segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE

    def __init__(self, *, size_bytes: int, segment_bytes: int) -> None:
        super().__init__(f"batch of {size_bytes} bytes, segment.bytes is {segment_bytes}")
        self.size_bytes, self.segment_bytes = size_bytes, segment_bytes


class InvalidTimestamp(KafkaError):
    """A timestamp is too far from the broker's clock, or of a type that producers may not set."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedCompression(KafkaError):
    """The codec bits name no codec."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def __init__(self, codec: int) -> None:
        super().__init__(f"codec {codec} does not exist")
        self.codec = codec


class OutOfOrderSequence(KafkaError):
    """An idempotent producer's batch does not follow its last one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def __init__(self, *, producer_id: int, epoch: int, asked: int, last: int) -> None:
        why = f"does not follow {last}" if last >= 0 else "is none to begin with, 0 comes first"
        super().__init__(f"producer {producer_id} epoch {epoch}: sequence {asked} {why}")
        self.producer_id, self.epoch, self.asked, self.last = producer_id, epoch, asked, last


class InvalidProducerEpoch(KafkaError):
    """The producer epoch is older than the newest one in this partition."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH

    def __init__(self, *, producer_id: int, asked: int, current: int) -> None:
        super().__init__(f"producer {producer_id}: epoch {asked} is older than {current}")
        self.producer_id, self.asked, self.current = producer_id, asked, current


class UnexpectedAppendOffset(KafkaError):
    """Batches with given offsets do not continue this log: a bug, or a diverged replica."""

    def __init__(self, *, first_offset: int, log_end: int) -> None:
        super().__init__(f"batches start at {first_offset}, the log ends at {log_end}")
        self.first_offset, self.log_end = first_offset, log_end


class FallingEpoch(KafkaError):
    """A given batch has an older epoch than the batch before it."""

    code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, *, first_offset: int, epoch: int, latest: int) -> None:
        super().__init__(f"the batch at {first_offset} is of epoch {epoch}, behind epoch {latest}")
        self.first_offset, self.epoch, self.latest = first_offset, epoch, latest


class LogIsTruncated(KafkaError):
    """A follower is truncating its log: retry, or ask the leader."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE

    def __init__(self) -> None:
        super().__init__("the log is being truncated")


class KafkaStorageError(KafkaError):
    """The disk of this partition failed: its directory is offline until a restart."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogClosed(KafkaError):
    """The log was closed during a read: the partition is no longer here."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class LoadStopped(TidemarkError):
    """The loading of logs was stopped by its caller."""


class LogRefused(TidemarkError):
    """A log contradicts the known facts about it; it is unchanged and not served.

    Attributes:
        reason: For people, with file, offset and limit.
        remedy: For people.
        facts: Compared with the loss that an operator accepted.
    """

    def __init__(self, reason: str, remedy: str, facts: RefusalFacts) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason, self.remedy, self.facts = reason, remedy, facts


class WouldWait(TidemarkError):
    """The answer needs the disk, for which the event loop must not wait: use a pool thread."""


class MustBeOpened(TidemarkError):
    """The batch must be inflated first, on a pool thread: see `local_log.log.opened_batches`."""
