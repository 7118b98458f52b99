"""Batches as a producer makes them, or as none should; the memory that a broker takes."""

import struct
import time
from pathlib import Path

from crc32c import crc32c

from kafka_protocol.records.records import build_batch


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def batch(*values: bytes, **options: object) -> bytearray:
    """A producer's batch of now; one record a value."""
    now = int(time.time() * 1000)
    return build_batch([(now, None, value, []) for value in values], **options)  # type: ignore[arg-type]


def with_records(codec: int, payload: bytes, count: int = 1) -> bytes:
    """A batch whose records are `payload`, said to be compressed with `codec`."""
    data = batch(b"x")[:61] + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)
