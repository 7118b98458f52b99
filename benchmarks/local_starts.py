"""Waits until the local log of partitions starts past an offset: all before it is remote only."""

import sys
import time
from collections.abc import Iterable

from kafka_client.blocking import BlockingClient
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey

_VERSION = 8
_EARLIEST_LOCAL = -4


def wait_for(
    bootstrap: str, topic: str, partitions: Iterable[int], offset: int, *, deadline_s: float
) -> None:
    """Return when every partition's local log starts at `offset` or later."""
    began = time.monotonic()
    with BlockingClient(bootstrap, "bench") as client:
        for partition in partitions:
            while (start := local_start(client, topic, partition)) < offset:
                if time.monotonic() - began > deadline_s:
                    sys.exit(f"{topic}-{partition} starts locally at {start}, not {offset}")
                time.sleep(0.2)


def local_start(client: BlockingClient, topic: str, partition: int) -> int:
    """The first offset that is here (ListOffsets, timestamp -4)."""
    cls = codec.request(ApiKey.LIST_OFFSETS).cls
    asked = cls.Topics.Partitions(partition_index=partition, timestamp=_EARLIEST_LOCAL)
    topics = [cls.Topics(name=topic, partitions=[asked])]
    body = cls(replica_id=-1, isolation_level=0, topics=topics)
    answer = client.ask_any(ApiKey.LIST_OFFSETS, _VERSION, body)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        sys.exit(f"ListOffsets of {topic}-{partition} answered error {found.error_code}")
    return int(found.offset)
