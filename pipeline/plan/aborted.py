"""Which aborted transactions the reader of a remote piece must know."""

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush

from kafka_protocol.files.txn_index import AbortedTransaction
from pipeline.aborted import AbortedRange, AbortedRanges
from pipeline.values import Piece, RemotePiece


class AbortedSweep:
    """Goes over the pieces of one partition once, ascending by offset.

    It stands behind the cutting: a piece that was cut by offsets gets only what overlaps them. One
    that was cut by bytes spans its segment's offsets, for all that is known, and its neighbours
    share one packed value with it.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Take the transactions.

        Args:
            aborted: each once, in any order.
        """
        self._waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._active: list[tuple[int, AbortedTransaction]] = []
        self._given: tuple[int, int, AbortedRanges] | None = None

    def given_to(self, piece: Piece) -> Piece:
        """The piece with the transactions that overlap it.

        Args:
            piece: begins at or above all before it.
        """
        if not isinstance(piece, RemotePiece) or not (self._waiting or self._active):
            return piece
        if self._given is None or self._given[:2] != (piece.first, piece.last):
            self._given = piece.first, piece.last, self._overlapping(piece)
        ranges = self._given[2]
        return replace(piece, aborted=ranges) if len(ranges) else piece

    def _overlapping(self, piece: RemotePiece) -> AbortedRanges:
        waiting, active = self._waiting, self._active
        while waiting and waiting[-1].first_offset <= piece.last:
            one = waiting.pop()
            heappush(active, (one.last_offset, one))
        while active and active[0][0] < piece.first:
            heappop(active)
        return AbortedRanges.of(
            AbortedRange(one.producer_id, one.first_offset, last) for last, one in active
        )
