"""What can be wrong with records that a client sent."""

from kafka_protocol.errors import ErrorCode, KafkaError


class InvalidRecordError(KafkaError):
    """Records that no reader could make sense of; sending them again does not help."""

    code = ErrorCode.INVALID_RECORD


class InflatedTooLargeError(KafkaError):
    """Compressed records that inflate to more than is allowed.

    DIFFERS: Kafka has no such cap and inflates whatever comes.
    """

    code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"compressed records inflate to more than {max_bytes} bytes")
        self.max_bytes = max_bytes


class TooManyHeadersError(KafkaError):
    """Records with more headers than a thread could walk over in a moment.

    DIFFERS: Kafka has no such cap.
    """

    code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, max_count: int) -> None:
        super().__init__(f"the records of a batch have more than {max_count} headers")
        self.max_count = max_count


class UnsupportedCodecError(KafkaError):
    """Codec bits that mean nothing (5 to 7)."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def __init__(self, codec: int) -> None:
        super().__init__(f"unknown compression codec {codec}")
        self.codec = codec
