"""Cuts and joins pieces into splits of about equal bytes.

A remote piece is cut at nominal bytes: no index is read for it. Where it does not begin at its
segment's first offset, bytes are taken to be spread evenly over the segment's offsets. So are those
of the brokers' tail, with the rate of the remote pieces.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.types import TopicPartition
from pipeline.aborted import AbortedRange, AbortedRanges
from pipeline.values import Piece, RemotePiece, Split, SplitLimits, TailPiece

_TAIL_BYTES_PER_OFFSET = 1_024
"""Where nothing remote says how large a record is."""
_JOIN_UP_TO = 1.25
"""A split may grow so far above its target rather than leave a small one behind."""

Sized = tuple[Piece, float]
"""A piece and the stored bytes that it holds, about."""


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


def cut_into_splits(
    pieces: Mapping[TopicPartition, Sequence[Sized]],
    limits: SplitLimits,
    aborted: Mapping[TopicPartition, Sequence[AbortedTransaction]],
) -> list[Split]:
    """All splits, partition by partition in the order given, ascending by offset within each.

    Args:
        pieces: of each partition, ascending by offset.
        limits: how large a split is.
        aborted: all that may overlap remote pieces; goes to those that it overlaps.
    """
    total = sum(size for of in pieces.values() for _, size in of)
    target = float(max(1, limits.target_bytes))
    if limits.splits_min:
        target = max(1.0, min(target, total / limits.splits_min))
    return [
        split
        for partition, of in pieces.items()
        for split in _joined(
            partition,
            _with_aborted(_cut(of, target, limits.offsets_max), aborted.get(partition, ())),
            target,
            limits.offsets_max,
        )
    ]


def bytes_of(piece: RemotePiece) -> float:
    """Stored bytes of the piece, about."""
    segment = piece.segment
    if piece.first == segment.start_offset and piece.last == segment.end_offset:
        return piece.byte_to - piece.byte_from
    low, high = _nominal(piece)
    return max(0.0, min(high, piece.byte_to) - max(low, piece.byte_from))


def bytes_of_tail(split: Split, piece: TailPiece) -> int:
    """Bytes of a tail piece of the split, about: what the estimate leaves for it."""
    remote = sum(bytes_of(one) for one in split.pieces if isinstance(one, RemotePiece))
    offsets = sum(one.last - one.first + 1 for one in split.pieces if isinstance(one, TailPiece))
    share = (piece.last - piece.first + 1) / offsets
    return round(max(0.0, split.bytes_estimate - remote) * share)


def _nominal(piece: RemotePiece) -> tuple[float, float]:
    """Where the piece's offsets lie in its segment, if bytes are spread evenly over offsets."""
    segment = piece.segment
    per_offset = segment.segment_size_bytes / (segment.end_offset - segment.start_offset + 1)
    low = (piece.first - segment.start_offset) * per_offset
    return low, low + (piece.last - piece.first + 1) * per_offset


def sized(pieces: Sequence[Piece]) -> list[Sized]:
    """The pieces of one partition with their bytes."""
    remote = [
        (piece, bytes_of(piece) if isinstance(piece, RemotePiece) else -1.0) for piece in pieces
    ]
    if all(size >= 0 for _, size in remote):
        return list[Sized](remote)
    known = [(one.last - one.first + 1, size) for one, size in remote if size >= 0]
    offsets = sum(count for count, _ in known)
    rate = sum(size for _, size in known) / offsets if offsets else _TAIL_BYTES_PER_OFFSET
    return [(one, size if size >= 0 else (one.last - one.first + 1) * rate) for one, size in remote]


def _joined(
    partition: TopicPartition, pieces: Iterable[Sized], target: float, offsets_max: int | None
) -> Iterator[Split]:
    joined: list[Piece] = []
    joined_bytes = 0.0
    for piece, size in pieces:
        too_large = joined_bytes + size > target * _JOIN_UP_TO
        too_long = (
            offsets_max is not None
            and bool(joined)
            and (piece.last - joined[0].first + 1 > offsets_max)
        )
        if joined and (too_large or too_long):
            yield Split(partition, tuple(joined), round(joined_bytes))
            joined, joined_bytes = [], 0.0
        joined.append(piece)
        joined_bytes += size
    if joined:
        yield Split(partition, tuple(joined), round(joined_bytes))


def _with_aborted(
    pieces: Iterable[Sized], aborted: Sequence[AbortedTransaction]
) -> Iterator[Sized]:
    sweep = AbortedSweep(aborted)
    return ((sweep.given_to(piece), size) for piece, size in pieces)


def _cut(pieces: Sequence[Sized], target: float, offsets_max: int | None) -> Iterator[Sized]:
    """The pieces, none much above `target`, none longer than `offsets_max`."""
    limit = target * _JOIN_UP_TO
    for piece, size in pieces:
        count = piece.last - piece.first + 1
        if offsets_max is not None and count > offsets_max:
            for part in _by_offsets(piece, offsets_max):
                yield from _by_bytes(part, size * (part.last - part.first + 1) / count, target)
        elif size > limit:
            yield from _by_bytes(piece, size, target)
        else:
            yield piece, size


def _by_offsets(piece: Piece, offsets_max: int) -> Iterator[Piece]:
    for first in range(piece.first, piece.last + 1, offsets_max):
        yield replace(piece, first=first, last=min(first + offsets_max - 1, piece.last))


def _by_bytes(piece: Piece, size: float, target: float) -> Iterable[Sized]:
    if size <= target * _JOIN_UP_TO:
        return [(piece, size)]
    count = -(-size // target)
    if isinstance(piece, TailPiece):
        per_part = max(1, -(-(piece.last - piece.first + 1) // int(count)))
        parts: list[Piece] = list(_by_offsets(piece, per_part))
    else:
        parts = _at_nominal_bytes(piece, int(count))
    return [(part, size / len(parts)) for part in parts]


def _at_nominal_bytes(piece: RemotePiece, count: int) -> list[Piece]:
    low, high = _nominal(piece)
    low, high = max(low, piece.byte_from), min(high, piece.byte_to)
    cuts = {int(low + (high - low) * number / count) for number in range(1, count)}
    inner = sorted(cut for cut in cuts if piece.byte_from < cut < piece.byte_to)
    edges = [piece.byte_from, *inner, piece.byte_to]
    return [
        replace(piece, byte_from=edges[number], byte_to=edges[number + 1])
        for number in range(len(edges) - 1)
    ]
