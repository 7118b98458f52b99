"""What the requests of the comparison with Apache Kafka have in common."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from broker.handlers.docs import handler_class
from broker.handlers.handler_table import APIS
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.differential.comparison import Case, Side

BASE_MS = (int(time.time()) - 3600) * 1000
"""Time of the first record: an hour ago, so that retention leaves it alone."""

VERSIONS = {
    handler.api_key: range(handler.versions.first, handler.versions.last + 1)
    for handler in map(handler_class, APIS)
}
"""That a broker serves; `docs/apis.md` shows them beside Kafka's."""
TOPICS = ("plain", "empty", "trimmed", "tiered", "compacted", "stamped", "missing")
BORDER_OFFSETS = (-100, -2, -1, 0, 1, 3, 5, 6, 7, 9, 10, 11, 100, 2**31, 2**63 - 1, -(2**63))


def records(
    count: int = 1, *, first: int = 0, size: int = 10, key: bytes | None = b"k", **options: Any
) -> bytearray:
    """One batch; record i has the time BASE_MS + 1000 * i."""
    made = [(BASE_MS + 1000 * i, key, b"v" * size, []) for i in range(first, first + count)]
    return build_batch(made, **options)


def every(
    api_key: ApiKey, label: str, body: Callable[[Side], Any] | dict[str, Any], low: int = 0
) -> Iterator[Case]:
    """The case in each served version from `low` on."""
    for version in VERSIONS[api_key]:
        if version >= low:
            yield Case(label, api_key, version, body)
