"""A node that can be looked at, of plain values, and the shape of the JSON value made of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from broker.observe.console.facts import (
    BrokerFacts,
    CommittedFacts,
    GroupFacts,
    PartitionFacts,
    QuorumFacts,
    TierFacts,
)
from broker.observe.console.history import NAMES, SAMPLES, History
from broker.observe.console.selection import Activity
from broker.observe.console.state import describe
from runtime.work import at_once


@dataclass
class ListedSource:
    """Says what it is given."""

    all_partitions: list[PartitionFacts] = field(default_factory=list)
    all_groups: list[GroupFacts] = field(default_factory=list)
    offsets: list[CommittedFacts] = field(default_factory=list)
    all_brokers: list[BrokerFacts] = field(default_factory=list)
    of_quorum: QuorumFacts | None = None
    of_tier: TierFacts | None = None
    looked_at: int = 0

    def partitions(self) -> Iterator[PartitionFacts]:
        return iter(self.all_partitions)

    def groups(self) -> Iterator[GroupFacts]:
        return iter(self.all_groups)

    def committed(self) -> Iterator[CommittedFacts]:
        for one in self.offsets:
            self.looked_at += 1
            yield one

    def committed_end(self, topic: str, partition: int) -> int:
        return next(
            (
                one.committed_end
                for one in self.all_partitions
                if (one.topic, one.partition) == (topic, partition)
            ),
            -1,
        )

    def brokers(self) -> Iterator[BrokerFacts]:
        return iter(self.all_brokers)

    def quorum(self) -> QuorumFacts | None:
        return self.of_quorum

    def tier(self) -> TierFacts | None:
        return self.of_tier


def described(source: ListedSource, activity: Activity | None = None, now_ms: int = 0) -> Any:
    """The value of one look."""
    return at_once(describe(source, activity or Activity(), History(), now_ms))


def log_of(topic: str, partition: int = 0, end: int = 100, **more: Any) -> PartitionFacts:
    """A healthy partition that is led here, with `end` committed records."""
    facts = {"is_led": True, "leader": 1, "replicas": 1, "isr": 1, "log_start": 0, "local_start": 0}
    facts |= {"committed_end": end, "log_end": end}
    return PartitionFacts(topic, partition, **(facts | more))


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _list(items: Any, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


_NUMBER = {"type": "integer", "minimum": -1}
_AMOUNT = {"type": "number", "minimum": 0}
_FLAG = {"type": "boolean"}
_TEXT = {"type": "string", "maxLength": 250}
_REASON = {"type": "string", "maxLength": 1_000}
_STATUS = {"enum": ["green", "yellow", "red"]}
_REPLICA = _object(id=_NUMBER, log_end=_NUMBER, behind=_NUMBER)
_QUORUM = _object(
    epoch=_NUMBER,
    leader=_NUMBER,
    is_leader=_FLAG,
    high_watermark=_NUMBER,
    voters=_list(_REPLICA, 100),
    observers=_list(_REPLICA, 100),
)
_TIER = _object(process=_TEXT, pid=_NUMBER, restarts=_NUMBER, assigned=_NUMBER, ready=_NUMBER)
_PARTITION = _object(
    **dict.fromkeys(("internal", "led", "tiered"), _FLAG),
    **dict.fromkeys(
        ("partition", "leader", "replicas", "isr", "log_start", "local_start", "copied_end"),
        _NUMBER,
    ),
    **dict.fromkeys(("committed_end", "log_end", "size_bytes", "lag", "more_groups"), _NUMBER),
    topic=_TEXT,
    problem=_REASON,
    groups=_list(_object(group=_TEXT, offset=_NUMBER, lag=_NUMBER), 8),
)
_OF_DESCRIBE = {
    "sums": _object(
        **dict.fromkeys(("partitions", "led", "tiered", "ill", "local_bytes"), _NUMBER)
    ),
    "partitions": _list(_PARTITION, 500),
    "more_partitions": _NUMBER,
    "groups": _list(
        _object(
            group=_TEXT,
            state=_TEXT,
            **dict.fromkeys(("members", "offsets", "lag", "lag_partitions"), _NUMBER),
        ),
        100,
    ),
    "more_groups": _NUMBER,
    "offsets_are_whole": _FLAG,
    "brokers": _list(
        _object(
            id=_NUMBER,
            endpoints=_list(_TEXT, 8),
            rack=_TEXT,
            **dict.fromkeys(("fenced", "in_controlled_shutdown", "has_tier"), _FLAG),
        ),
        100,
    ),
    "more_brokers": _FLAG,
    "quorum": {"anyOf": [{"type": "null"}, _QUORUM]},
    "tier": {"anyOf": [{"type": "null"}, _TIER]},
    "rates": _object(**dict.fromkeys(NAMES, _list({"type": ["number", "null"]}, SAMPLES - 1))),
    "increases": _object(**dict.fromkeys(NAMES, _AMOUNT)),
}
DESCRIBED_SCHEMA = _object(**_OF_DESCRIBE)
"""What `describe` returns."""

STATE_SCHEMA = _object(
    **_OF_DESCRIBE,
    version=_TEXT,
    node_id=_NUMBER,
    kind={"enum": ["broker", "controller"]},
    time_ms=_NUMBER,
    health=_object(
        status=_STATUS,
        stage=_TEXT,
        reasons=_list(_object(part=_TEXT, status=_STATUS, text=_REASON, remedy=_REASON), 50),
        more_reasons=_NUMBER,
        notes=_list(_REASON, 50),
        parts={"type": "object", "additionalProperties": _STATUS, "maxProperties": 50},
    ),
)
"""What a browser gets."""
