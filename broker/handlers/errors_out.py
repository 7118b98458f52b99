"""From exceptions to Kafka's error codes; no other module converts them.

An error is set on the smallest unit that failed: callers ask for the code of one partition, topic
or member. Error messages contain only texts of KafkaError, no internals.
"""

import logging

from kafka_protocol.errors import ErrorCode, KafkaError
from runtime.incidents import Incident
from runtime.log_context import limited

log = logging.getLogger(__name__)


def code_of(error: BaseException, doing: str) -> ErrorCode:
    """Return Kafka's code for an exception, and log unexpected ones.

    Args:
        error: A KafkaError has its own code. OSError becomes KAFKA_STORAGE_ERROR, which clients
            retry. Any other is a bug and becomes UNKNOWN_SERVER_ERROR.
        doing: Operation that failed, for the log; must contain no text from outside.
    """
    if isinstance(error, KafkaError):
        return error.code
    if isinstance(error, OSError):
        limited.error(log, Incident.STORAGE_FAILED.line(doing=doing, error=str(error)), doing)
        return ErrorCode.KAFKA_STORAGE_ERROR
    line = Incident.DEFECT.line(what=f"unexpected error: doing={doing}")
    limited.error(log, line, (type(error), doing), exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def message_of(error: BaseException) -> str | None:
    """Text for the error message field of an answer; None: only the log may have it."""
    return str(error)[:500] if isinstance(error, KafkaError) else None
