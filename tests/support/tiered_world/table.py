"""What both brokers, the store and the metadata hold, as a text to compare with a table of KIP-405.

    A leads    3:m3/1 4:m4/1 5:m5/2 | 6:m6/2 7:m7/3
               epochs 0@0 1@3 2@5 3@7; high watermark 8; copied to 5
    B is down
    store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0

A record is `offset:value/leader epoch`, an epoch `epoch@first offset`; `|` stands between local
segments. The metadata are those of both tiers, which are compared.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import iter_records
from kafka_protocol.types import EpochEntry
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata, SegmentState
from tests.support.tiered_world.broker import PARTITION, TieredBroker

if TYPE_CHECKING:
    from tests.support.tiered_world.world import TieredWorld

INDENT = " " * 11


def table(world: "TieredWorld") -> str:
    """See the module."""
    lines = [""]
    for one in (world.a, world.b):
        lines += _broker(one)
    known = _segments(world)
    for segment in known:
        span = f"{segment.start_offset}-{segment.end_offset}"
        lines.append(f"store {span:<5}{_stored(world, segment)}")
    _check_store(world, known)
    return "\n".join([*lines, ""])


def _broker(one: TieredBroker) -> list[str]:
    if not one.is_up:
        return [f"{one.name} is down"]
    if one.partition is None:
        return [f"{one.name} has no replica"]
    log, role = one.log, "leads" if one.partition.is_leader else "follows"
    parts = [" ".join(shown(_bytes(each))) for each in log.segments.all]
    head = f"{one.name} {role}"
    copied = f"copied to {log.copied_through}" if log.copied_through >= 0 else "nothing copied"
    start = f"; log start {log.log_start_offset}" if log.log_start_offset else ""
    return [
        f"{head:<11}{' | '.join(parts)}".rstrip(),
        f"{INDENT}epochs {_epochs(log.epochs.entries())}; high watermark {log.high_watermark}; "
        f"{copied}{start}",
    ]


def _bytes(segment: Any) -> bytes:
    return Path(f"/proc/self/fd/{segment.file.fd}").read_bytes()[: segment.size_bytes]


def _epochs(entries: Sequence[EpochEntry]) -> str:
    return " ".join(f"{one.epoch}@{one.start_offset}" for one in entries) or "none"


def _segments(world: "TieredWorld") -> list[RemoteLogSegmentMetadata]:
    """What the tiers know, which must be the same; by their first offset, then in their order."""
    each = [
        sorted(
            manager.list_segments(PARTITION),
            key=lambda one, of=manager: (one.start_offset, of.finished_order(one.id)),
        )
        for manager in (
            one.loop_tier.metadata for one in (world.a, world.b) if one.partition is not None
        )
    ]
    assert all(found == each[0] for found in each), "all tiers know the same"
    return each[0]


def _stored(world: "TieredWorld", segment: RemoteLogSegmentMetadata) -> str:
    storage = world.up[0].loop_tier.storage
    with storage.fetch_log_segment(segment, 0) as stream:
        records = " ".join(shown(stream.read()))
    with storage.fetch_index(segment, IndexType.LEADER_EPOCH) as stream:
        index = _epochs(epoch_checkpoint.parse(stream.read()))
    state = "" if segment.state is SegmentState.COPY_SEGMENT_FINISHED else f" {segment.state.name}"
    return f"{records}; epochs {index}; metadata {_epochs(segment.leader_epochs)}{state}"


def _check_store(world: "TieredWorld", known: Sequence[RemoteLogSegmentMetadata]) -> None:
    """It has the objects of the segments that the metadata name, and nothing else."""
    assert world.objects() == len(known)


def shown(data: bytes) -> list[str]:
    """`offset:value/epoch` of each record in whole batches."""
    found = []
    for position, header in iter_batches(data):
        epoch = header.partition_leader_epoch
        for record in iter_records(data, position):
            found.append(f"{record.offset}:{bytes(record.value or b'').decode()}/{epoch}")
    return found
