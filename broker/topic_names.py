"""Which topic names are allowed.

A topic's name becomes a directory's name, so this check stands between the network and the file
system: nothing that fails it may reach `local_log`. Source: Kafka's `Topic.validate`.
"""

import re
from typing import Final

from kafka_protocol.errors import ErrorCode, KafkaError

LONGEST_NAME: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


class InvalidTopic(KafkaError):
    """No topic can have this name."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


def check_topic_name(name: str | None) -> None:
    """Refuse a name that no topic can have.

    Raises:
        InvalidTopic: the message says what is wrong, and repeats no more than the allowed length.
    """
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > LONGEST_NAME:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{_shown(name)}' is longer than the max allowed "
            f"length {LONGEST_NAME}"
        )
    if _LEGAL.match(name) is None:
        raise InvalidTopic(
            f"Topic name is invalid: '{_shown(name)}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )


def is_legal_topic_name(name: str | None) -> bool:
    """Whether a topic can have this name."""
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True


def _shown(name: str) -> str:
    shortened = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
    return shortened.encode("unicode_escape").decode("ascii")
