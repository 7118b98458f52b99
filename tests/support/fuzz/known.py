"""Values by the names of fields: without them no random request gets past the first question."""

import random
import time
from collections.abc import Callable
from typing import Any

from kafka_protocol.records.records import build_batch

Dice = random.Random

TOPICS = ("fuzz-plain", "fuzz-compact", "fuzz-made", "fuzz.dots", "__consumer_offsets", "../x")
GROUPS = ("fuzz-group", "fuzz-other", "", "a\0b")
CONFIGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "no.such.key")
WORDS = ("", "range", "consumer", "1", "-1", "compact", "x" * 300, "é\x1b[2J\r\n", "\0", "9" * 400)
EDGES = (0, 1, -1, 2, 127, 128, 32_767, -32_768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
WAITS_MS = (0, 1, 20, -1)


def records(dice: Dice) -> bytes | None:
    """A batch as a producer makes it, or one with a wound."""
    if dice.random() < 0.1:
        return None
    producer = dice.random() < 0.3
    now = int(time.time() * 1000)
    data = build_batch(
        [(now, dice.choice([None, b"k"]), b"v" * dice.randrange(50), []) for _ in range(3)],
        codec=dice.randrange(5),
        producer_id=dice.randrange(3) if producer else -1,
        producer_epoch=0 if producer else -1,
        base_sequence=dice.randrange(9) if producer else -1,
    )
    if dice.random() < 0.5:
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data[: dice.randrange(len(data))] if dice.random() < 0.1 else data)


Choice = Callable[[Dice], Any]


def _one_of(*values: Any) -> Choice:
    return lambda dice: dice.choice(values)


BY_NAME: dict[str, Choice] = {
    "name": _one_of(*TOPICS, *CONFIGS, *WORDS),
    "topic": _one_of(*TOPICS),
    "resource_name": _one_of(*TOPICS, "1", ""),
    "resource_type": _one_of(2, 4, 8, 0, 99),
    "config_operation": _one_of(0, 1, 2, 3, 4),
    "group_id": _one_of(*GROUPS),
    "key": _one_of(*GROUPS),
    "timeout_ms": _one_of(*WAITS_MS, 1000),
    "max_wait_ms": _one_of(*WAITS_MS),
    "rebalance_timeout_ms": _one_of(*WAITS_MS),
    "session_timeout_ms": _one_of(6000, 0, -1, 2**31 - 1),
    "num_partitions": _one_of(1, 2, -1, 0, 10**9),
    "replication_factor": _one_of(1, -1, 0, 2),
    "acks": _one_of(-1, 1, 0, 2),
    "transactional_id": _one_of(None, None, "fuzz"),
    "records": records,
    **dict.fromkeys(("index", "partition", "partition_index"), _one_of(0, 0, 0, 1, -1, 2**31 - 1)),
    **dict.fromkeys(
        ("fetch_offset", "offset", "committed_offset"), _one_of(0, 1, 3, -1, 2**63 - 1)
    ),
    "timestamp": _one_of(-1, -2, -3, -4, -5, 0, 1, 2**63 - 1, -(2**63)),
    "session_id": _one_of(0, 0, 1, -1),
    "session_epoch": _one_of(0, -1, 1),
}
"""Never the health topic's name: what a request deletes may be anything else. Waits are short."""
