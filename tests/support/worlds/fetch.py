"""Fetch handlers for tests, what to ask them, and what they said."""

from typing import Any

from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.topics.cluster import BrokerAddress
from tests.support.worlds.data_plane import World

BIG = 2**31 - 1


def addresses(listener: str) -> list[BrokerAddress]:
    return [
        BrokerAddress(1, f"{listener.lower()}.host", 9092, "r1", is_fenced=False),
        BrokerAddress(2, "another.host", 9092, None, is_fenced=False),
    ]


def make(world: World, remote: Any = None, **limits: Any) -> FetchHandler:
    return FetchHandler(
        world.replicas,
        world.ports,
        limits=FetchLimits(**limits),
        remote=remote,
        addresses=addresses,
    )


def ask(
    world: World, version: int, *topics: tuple[str, list[dict[str, Any]]], **more: Any
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": BIG,
        "isolation_level": 0,
        "topics": [],
    }
    for topic, partitions in topics:
        ident = {"topic": topic}
        if version >= 13:
            known = world.topics.get(topic)
            ident = {"topic_id": known.id if known else b"?" * 16}
        defaults = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": BIG}
        fields["topics"].append(ident | {"partitions": [defaults | p for p in partitions]})
    return fields | more


def parts(answer: Any) -> list[Any]:
    return [p for topic in answer.responses for p in topic.partitions]
