"""The newest lineage of a partition in a bucket, and what of it can be read. Brokers are not asked.

Of all complete copies the one counts that reaches furthest in the newest leader epoch: its
leader-epoch index is the chain. A later leader that has copied nothing yet is not known here.
Another copy may be of an abandoned lineage: it leaves the chain at an epoch that the chain does not
have, or ends earlier. But no two lineages let the same epoch begin at different offsets.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry
from pipeline.errors import DamagedDataError
from pipeline.plan.live import LiveRun
from pipeline.plan.pieces import stretches
from pipeline.values import OffsetRange
from rlmm.lineage import segment_spans
from rsm_plugins.segment import RemoteLogSegmentMetadata


def furthest(copies: Iterable[RemoteLogSegmentMetadata]) -> RemoteLogSegmentMetadata | None:
    """The copy that reaches furthest in the newest epoch; of several the highest id."""
    return max(
        copies,
        key=lambda one: (one.leader_epochs[-1].epoch, one.end_offset, one.id.id),
        default=None,
    )


def chain_of(segment: RemoteLogSegmentMetadata, index: bytes, name: str) -> list[EpochEntry]:
    """The chain that a copy's leader-epoch index says.

    Args:
        segment: the copy.
        index: bytes of its leader-epoch index.
        name: of the copy, for messages.

    Raises:
        DamagedDataError: it cannot be read, is no chain, or is not that of the copy's manifest.
    """
    try:
        chain = epoch_checkpoint.parse(index)
    except CorruptFileError as error:
        raise DamagedDataError(f"{name}: its leader-epoch index is damaged: {error}") from error
    rising = all(
        one.epoch < two.epoch and one.start_offset < two.start_offset
        for one, two in pairwise(chain)
    )
    own = {span.epoch: span for span in segment_spans(segment)}
    said = {entry.epoch: entry.start_offset for entry in chain}
    fits = rising and all(
        epoch in said and said[epoch] <= span.first for epoch, span in own.items()
    )
    if not fits or _contradicts(segment, dict(chain)):
        raise DamagedDataError(
            f"{name}: its leader-epoch index {list(map(tuple, chain))!r:.200} is not that of its"
            f" manifest {list(map(tuple, segment.leader_epochs))!r:.200}"
        )
    return chain


def contradicting(
    copies: Iterable[RemoteLogSegmentMetadata], chain: Sequence[EpochEntry]
) -> list[RemoteLogSegmentMetadata]:
    """The copies that let an epoch of the chain begin elsewhere: no lineage can do that."""
    starts = dict(chain)
    return [one for one in copies if _contradicts(one, starts)]


def _contradicts(segment: RemoteLogSegmentMetadata, starts: Mapping[int, int]) -> bool:
    """Whether a segment knows another begin of an epoch.

    A segment's first entry begins at the segment's start if its epoch is older, the chain's first
    at a log start if its epoch is older.
    """
    first_epoch = min(starts, default=-1)
    for number, (epoch, start) in enumerate(segment.leader_epochs):
        begun = starts.get(epoch)
        if begun is None or begun == start:
            continue
        if begun > start and epoch != first_epoch:
            return True
        if begun < start and number > 0:
            return True
    return False


def readable(runs: Sequence[LiveRun]) -> tuple[OffsetRange, list[OffsetRange]]:
    """The unbroken offsets up to the end, and the holes below them."""
    groups = stretches(runs)
    if not groups:
        return OffsetRange(0, 0), []
    holes = [OffsetRange(one[-1].last + 1, two[0].first) for one, two in pairwise(groups)]
    return OffsetRange(groups[-1][0].first, groups[-1][-1].last + 1), holes
