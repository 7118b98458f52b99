"""Which aborted transactions the reader of a remote piece must know."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from kafka_protocol.files.txn_index import AbortedTransaction
from pipeline.values import Piece, RemotePiece


def with_aborted(pieces: Sequence[Piece], aborted: Iterable[AbortedTransaction]) -> Sequence[Piece]:
    """Give each remote piece the transactions that overlap it, ascending by first offset.

    Args:
        pieces: ascending by offset.
        aborted: each once, in any order.
    """
    waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    if not waiting:
        return pieces
    active: list[tuple[int, AbortedTransaction]] = []
    made: list[Piece] = []
    for piece in pieces:
        while waiting and waiting[-1].first_offset <= piece.last:
            one = waiting.pop()
            heappush(active, (one.last_offset, one))
        while active and active[0][0] < piece.first:
            heappop(active)
        if isinstance(piece, RemotePiece) and active:
            found = sorted((one for _, one in active), key=lambda one: one.first_offset)
            made.append(replace(piece, aborted=tuple(found)))
        else:
            made.append(piece)
    return made
