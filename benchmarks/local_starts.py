"""Waits until the local log of partitions starts past an offset: all before it is remote only."""

import socket
import struct
import sys
import time
from collections.abc import Iterable

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions

_VERSION = 8
_EARLIEST_LOCAL = -4


def wait_for(
    bootstrap: str, topic: str, partitions: Iterable[int], offset: int, *, deadline_s: float
) -> None:
    """Return when every partition's local log starts at `offset` or later."""
    began = time.monotonic()
    for partition in partitions:
        while (start := local_start(bootstrap, topic, partition)) < offset:
            if time.monotonic() - began > deadline_s:
                sys.exit(f"{topic}-{partition} starts locally at {start}, not {offset}")
            time.sleep(0.2)


def local_start(bootstrap: str, topic: str, partition: int) -> int:
    """The first offset that is here (ListOffsets, timestamp -4)."""
    message = codec.request(ApiKey.LIST_OFFSETS)
    cls = message.cls
    asked = cls.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=_EARLIEST_LOCAL
    )
    body = message.encode(
        cls(
            replica_id=-1,
            isolation_level=0,
            topics=[cls.ListOffsetsTopic(name=topic, partitions=[asked])],
        ),
        _VERSION,
    )
    head = struct.pack(">hhih", ApiKey.LIST_OFFSETS, _VERSION, 1, 5) + b"bench\0"
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            frame = stream.read(size)
    skipped = 4 + header_versions(ApiKey.LIST_OFFSETS, _VERSION)[1]
    answer, _ = codec.response(ApiKey.LIST_OFFSETS).decode(frame, _VERSION, skipped)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        sys.exit(f"ListOffsets of {topic}-{partition} answered error {found.error_code}")
    return int(found.offset)
