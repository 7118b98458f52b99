"""What the requests of the comparison with Apache Kafka have in common."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.differential.comparison import Case, Side

BASE_MS = (int(time.time()) - 3600) * 1000
"""Time of the first record: an hour ago, so that retention leaves it alone."""

VERSIONS = {
    ApiKey.PRODUCE: range(3, 14),
    ApiKey.FETCH: range(4, 19),
    ApiKey.LIST_OFFSETS: range(1, 12),
    ApiKey.METADATA: range(14),
    ApiKey.CREATE_TOPICS: range(2, 8),
    ApiKey.DELETE_TOPICS: range(1, 7),
    ApiKey.DELETE_RECORDS: range(3),
    ApiKey.INIT_PRODUCER_ID: range(6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    ApiKey.DESCRIBE_CONFIGS: range(1, 5),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: range(2),
    ApiKey.DESCRIBE_CLUSTER: range(3),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: range(1),
    ApiKey.DESCRIBE_ACLS: range(1, 4),
    ApiKey.CREATE_ACLS: range(1, 4),
    ApiKey.DELETE_ACLS: range(1, 4),
}
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
