"""Which topic names are allowed.

A name becomes a directory (`<name>-<partition>`) and a metric, where "." and "_" look the same:
hence the characters, the length and the ban on names that differ in those two only.
"""

import re
from typing import Final

from metadata_topic.controller.errors import InvalidTopicError

NAME_CHARS_MAX: Final = 249

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""Topics that Kafka marks as internal; `__remote_log_metadata` is not among them."""

_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def validate_name(name: str) -> None:
    """Check one name.

    Raises:
        InvalidTopicError: saying what is wrong; a long name is not repeated in the message.
    """
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed")
    if name in {".", ".."}:
        raise InvalidTopicError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidTopicError(
            f"Topic name is invalid: its length of {len(name)} is longer than the max allowed "
            f"length {NAME_CHARS_MAX}"
        )
    if not _ALLOWED.match(name):
        raise InvalidTopicError(
            f"Topic name is invalid: {name!r} contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
