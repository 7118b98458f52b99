"""What broker and cleaner process say to each other: one JSON object a line.

The broker sends a `Job`, and before it `Producers` where the log has some. The process answers
with `Alive` now and then, with a `Group` whenever a new segment is on the disk, and with one
`Done` or `Failed` at the end.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from local_log.producers.last_batches import ENTRY_BYTES


class SourceSegment(msgspec.Struct, frozen=True):
    """A segment that is to be read; see `policy.SegmentToClean`."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int = 0
    time_index_bytes: int = 0


class Job(msgspec.Struct, frozen=True, kw_only=True, tag="job"):
    """One pass over one log.

    Attributes:
        number: of the job; the answers carry it.
        token: part of the names of new files: those of a process that should be gone are others.
        segments: from the first one to the first uncleanable offset.
        ahead: those after them, the active one as far as it was written: read only for markers.
        first_dirty: below it everything was cleaned.
        aborted: transaction indexes that may speak of these segments, by their base offsets.
        producers: see `last_batches`; sent as lines of their own.
        map_bytes: memory for keys.
        buffer_bytes: read at once.
        bytes_per_second: of reading and writing together; 0: no limit.
    """

    number: int
    token: str
    directory: str
    segments: list[SourceSegment]
    ahead: list[SourceSegment]
    first_dirty: int
    aborted: list[int]
    producers: bytes
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    buffer_bytes: int
    bytes_per_second: float


class Producers(msgspec.Struct, frozen=True, tag="producers"):
    """Some of the producers of the next job."""

    packed: bytes


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The process is there, once a second while it has a job, also while it waits for a disk.

    Attributes:
        steps: grows while the pass goes on.
    """

    number: int
    steps: int


class Group(msgspec.Struct, frozen=True, kw_only=True, tag="group"):
    """Some neighbouring segments have become one, which lies beside them.

    Attributes:
        old: base offsets of the segments.
        old_bytes: their size together, as the job said.
        size_bytes: of the new one, which has the base offset of the first.
        max_timestamp, offset_of_max_timestamp, first_timestamp: of its batches; -1, its base
            offset and -1 where it has none.
        has_aborted: it has a transaction index.
        is_changed: False where the new one would be the same as the only old one: nothing was kept.
    """

    number: int
    old: list[int]
    old_bytes: int
    size_bytes: int
    max_timestamp: int
    offset_of_max_timestamp: int
    first_timestamp: int
    has_aborted: bool
    is_changed: bool


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The pass is over.

    Attributes:
        cleaned_to: everything below is clean (exclusive).
        map_use: how full the map of keys was, 0 to 1.
        keys_left: there was no room for all keys: the rest is for another pass.
    """

    number: int
    cleaned_to: int
    read_bytes: int
    written_bytes: int
    map_use: float
    keys_left: bool


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The pass ended early.

    Attributes:
        is_damage: a batch is damaged: another try would fail as well.
        reason: for people, with file and byte.
    """

    number: int
    is_damage: bool
    reason: str


Answer: TypeAlias = Alive | Group | Done | Failed
Order: TypeAlias = Producers | Job

PRODUCERS_BYTES: Final = 5000 * ENTRY_BYTES
"""Of one line: none holds the interpreter for long."""

encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_answer = msgspec.json.Decoder(Answer).decode


def lines_of(job: Job) -> Iterator[bytes]:
    """What is sent of a job."""
    for at in range(0, len(job.producers), PRODUCERS_BYTES):
        yield encode(Producers(job.producers[at : at + PRODUCERS_BYTES])) + b"\n"
    yield encode(msgspec.structs.replace(job, producers=b"")) + b"\n"


def whole_job(job: Job, producers: list[bytes]) -> Job:
    """The job again, with the producers that came before it."""
    return msgspec.structs.replace(job, producers=b"".join(producers))
