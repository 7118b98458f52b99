"""From exceptions to the codes that clients know; the one place that does it.

Errors stay in the smallest slot that is wrong: callers ask for the code of one partition, topic or
member. Nothing from inside goes out in an error message but what a KafkaError says.
"""

import logging

from kafka_protocol.errors import ErrorCode, KafkaError
from runtime.incidents import Incident

log = logging.getLogger(__name__)

_seen: set[tuple[type[BaseException], str]] = set()


def code_of(error: BaseException, doing: str) -> ErrorCode:
    """Return the code for what went wrong.

    Args:
        error: a KafkaError has its own code; a failing disk is KAFKA_STORAGE_ERROR, which clients
            retry; anything else is a mistake of ours.
        doing: what was tried, for the log; no text from outside.
    """
    if isinstance(error, KafkaError):
        return error.code
    if isinstance(error, OSError):
        log.error("storage failed: doing=%s error=%s", doing, error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    place = (type(error), doing)
    if place in _seen:
        log.error(
            Incident.DEFECT.line(what=f"unexpected error again: doing={doing} error={error!r}")
        )
    else:
        _seen.add(place)  # one stack a kind is enough
        log.error(Incident.DEFECT.line(what=f"unexpected error: doing={doing}"), exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def message_of(error: BaseException) -> str | None:
    """Text for the error message field of an answer; None for what only the log may know."""
    return str(error)[:500] if isinstance(error, KafkaError) else None
