"""`leader-epoch-checkpoint`: which leader epoch began at which offset, as text.

The same bytes travel to remote storage as a segment's leader-epoch index.
"""

from collections.abc import Iterable

from kafka_protocol.files.checkpoint_text import dump_lines, integer, parse_lines
from kafka_protocol.types import EpochEntry

FILE_NAME = "leader-epoch-checkpoint"


def dump(entries: Iterable[EpochEntry]) -> bytes:
    """Write an epoch chain, oldest epoch first."""
    return dump_lines(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def parse(data: bytes) -> list[EpochEntry]:
    """Read an epoch chain; its order is not checked.

    Raises:
        CorruptFileError: The file is no checkpoint of version 0.
    """
    return [
        EpochEntry(integer(epoch), integer(start_offset))
        for epoch, start_offset in parse_lines(data, 2)
    ]
