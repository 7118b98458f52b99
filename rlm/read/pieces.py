"""The batches that an answer is made of, chunk after chunk."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from rlm.link.messages import Read
from rlm.read.chunk import Chunk, Selection, select
from rlm.read.chunk_cache import ChunkCache
from rlm.read.segment_index import SegmentIndex
from rsm_plugins.segment import RemoteLogSegmentMetadata

REGIONS_MAX = 16
WINDOW_BATCHES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one chunk that goes into an answer."""

    chunk: Chunk
    selection: Selection


@dataclass(frozen=True, slots=True)
class Found:
    """Where in a segment an answer begins."""

    metadata: RemoteLogSegmentMetadata
    index: SegmentIndex
    chunk: Chunk
    offset: int


def gather(
    chunks: ChunkCache, found: Found, question: Read, *, room: int, window: int
) -> list[Piece]:
    """Batches of the first chunk and of those after it that are here, within the bounds.

    Args:
        chunks: those that are here.
        found: where to begin.
        question: its bound of bytes, and where its epoch ends.
        room: so many bytes of further chunks may be lent.
        window: so many bytes beyond the question's bound are of use.
    """
    pieces, batches = list[Piece](), 0
    chunk, left = found.chunk, question.max_bytes + window
    while len(pieces) < REGIONS_MAX:
        picked = select(
            chunk.table,
            found.offset,
            question.epoch_end,
            left,
            min_one_batch=question.min_one_batch and not pieces,
        )
        if picked is None:
            break
        pieces.append(Piece(chunk, picked))
        left -= picked.size_bytes
        batches += picked.end_batch - picked.first_batch
        if window and batches > WINDOW_BATCHES_MAX:
            return gather(chunks, found, question, room=room, window=0)
        if picked.position + picked.size_bytes < chunk.size_bytes:
            break
        if chunk.end == found.metadata.segment_size_bytes:
            break
        following = chunks.peek(found.metadata, found.index, chunk.end)
        if following is None or following.size_bytes > room:
            break
        room -= following.size_bytes
        chunk = following
    return pieces


def batch_table(pieces: Sequence[Piece]) -> tuple[bytes, bytes]:
    """Ends, counted over all pieces, and last offsets of the batches; see `ReadAnswer`."""
    ends, last_offsets, base = array("q"), array("q"), 0
    for piece in pieces:
        table, picked = piece.chunk.table, piece.selection
        shift = base - picked.position
        first, end = picked.first_batch, picked.end_batch
        ends.extend(position + shift for position in table.positions[first + 1 : end + 1])
        last_offsets += table.last_offsets[first:end]
        base += picked.size_bytes
    return ends.tobytes(), last_offsets.tobytes()
