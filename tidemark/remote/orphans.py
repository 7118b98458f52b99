"""Deletes orphans, and nothing else, when nothing at all speaks against it.

An orphan may go when all of this holds:

* the metadata was read whole: from the topic's first record on, with no record that could not be
  understood. Else "unknown" means little;
* the store holds at least one segment that the metadata calls FINISHED. Else one of the two is
  another cluster's;
* the metadata tells of the orphan's partition. This cluster's brokers wrote STARTED before they
  wrote any object, and what is told of a partition is kept for ever; so an orphan in a partition
  without any record was written by another cluster that shares the store;
* its youngest object is older than the longest copy, by the store's own clock: a probe is copied
  and its time compared, so no clock of this machine or of a broker matters;
* the brokers stand behind their metadata, and the store's claim is theirs (`trust`);
* right before the deletion, the metadata read to its end again still does not know it.

The last two are asked again before each batch.
"""

import io
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rsm_plugins.api import ObjectLister, RemoteStorageError, RemoteStorageManager
from rsm_plugins.segment import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata
from tidemark.remote.audit import Finding, Kind
from tidemark.remote.audit_run import Audit, Totals, bases_in, lister_of
from tidemark.remote.metadata_reader import MetadataReader

CLOCK_GRAIN_MS = 2_000
"""Stores keep times in whole seconds or so."""

BATCH = 100
"""Orphans that are deleted upon one look at metadata and claims."""

_PROBE_TOPIC = "tidemark-audit-probe"


class Permission(Protocol):
    """Says whether metadata and store belong together now; see `tidemark.remote.trust`."""

    def why_refused(self) -> str | None:
        """Why nothing may be deleted."""
        ...

    def why_kept(self, partition: TopicIdPartition) -> str | None:
        """Why an orphan of this partition stays."""
        ...


@dataclass(slots=True)
class Deletion:
    """The result for the orphans.

    Attributes:
        refused: why nothing was touched, None where something might have been.
        kept: orphans that stay, with the reason.
    """

    refused: str | None = None
    deleted: list[Finding] = field(default_factory=list)
    kept: list[tuple[Finding, str]] = field(default_factory=list)


def delete_orphans(
    storage: RemoteStorageManager,
    metadata: MetadataReader,
    audit: Audit,
    copy_max_ms: int,
    permission: Permission,
    tell: Callable[[Finding], object],
) -> Deletion:
    """Delete the orphans of an audit that may go.

    Args:
        storage: the plugin.
        metadata: of the audit.
        audit: its findings were asked for.
        copy_max_ms: the longest copy.
        permission: asked before each batch.
        tell: told each orphan right before it is deleted.

    Raises:
        ClusterError, RemoteStorageError: it was not carried through.
    """
    if not audit.totals.findings[Kind.ORPHAN]:
        return Deletion()
    refused = why_not_trusted(audit.totals) or permission.why_refused()
    if refused is not None:
        return Deletion(refused)
    lister = lister_of(storage)
    assert lister is not None, "orphans come out of a listing"
    removable, kept = sort_out(audit.findings(), store_now_ms(storage, lister), copy_max_ms)
    out = Deletion(kept=kept)
    for first in range(0, len(removable), BATCH):
        metadata.read_to_end(lambda done, total: None)
        refused = permission.why_refused()
        if refused is not None:
            out.kept.extend((one, refused) for one in removable[first:])
            break
        batch = removable[first : first + BATCH]
        for one, obstacle in _delete(storage, lister, metadata, permission, batch, tell):
            if obstacle is None:
                out.deleted.append(one)
            else:
                out.kept.append((one, obstacle))
    return out


def why_not_trusted(totals: Totals) -> str | None:
    """Why metadata or store may not be believed; None if both may."""
    if not totals.listed:
        return "the store was not listed"
    if not totals.metadata_is_whole:
        return (
            "the metadata topic was not read whole: it has lost its first records, or holds some"
            " that cannot be understood"
        )
    if not totals.matched:
        return (
            "the store holds nothing that the metadata calls finished: is this the store of this"
            " cluster?"
        )
    return None


def store_now_ms(storage: RemoteStorageManager, lister: ObjectLister) -> int:
    """The time on the store's clock: the time of a tiny segment that is copied and deleted again.

    Raises:
        RemoteStorageError: it could not be copied, or not be found.
    """
    partition = TopicIdPartition(secrets.token_bytes(16), 0, _PROBE_TOPIC)
    body = b"probe"
    probe = _stand_in(partition, secrets.token_bytes(16), 0, len(body))
    data = LogSegmentData(
        log=io.BytesIO(body),
        offset_index=io.BytesIO(),
        time_index=io.BytesIO(),
        transaction_index=None,
        producer_snapshot=io.BytesIO(),
        leader_epoch_index=b"0\n0\n",
    )
    try:
        probe = replace(probe, custom_metadata=storage.copy_log_segment_data(probe, data))
        (base, *_) = bases_in(storage)(probe)
        times = [one.modified_ms for one in lister.list_objects(base)]
    finally:
        storage.delete_log_segment_data(probe)
    if not times:
        raise RemoteStorageError("a probe was copied and the listing does not show it")
    return min(times)


def sort_out(
    findings: Iterable[Finding], now_ms: int, copy_max_ms: int
) -> tuple[list[Finding], list[tuple[Finding, str]]]:
    """Tell orphans that may go from those that stay, with the reason.

    Args:
        findings: all of them.
        now_ms: by the store's clock.
        copy_max_ms: the longest copy.
    """
    removable, kept = [], []
    for one in findings:
        if one.kind is not Kind.ORPHAN:
            continue
        assert one.modified_ms is not None, "an orphan was listed"
        age_ms = now_ms - one.modified_ms
        if not one.is_ours:
            kept.append((one, "the metadata never knew its partition"))
        elif age_ms <= copy_max_ms + CLOCK_GRAIN_MS:
            kept.append((one, f"{age_ms // 1_000} s old: younger than the longest copy"))
        else:
            removable.append(one)
    return removable, kept


def _delete(
    storage: RemoteStorageManager,
    lister: ObjectLister,
    metadata: MetadataReader,
    permission: Permission,
    orphans: Sequence[Finding],
    tell: Callable[[Finding], object],
) -> Iterator[tuple[Finding, str | None]]:
    """Delete orphans one by one; metadata and permission are those of right before.

    Yields:
        Each, and why it was not deleted; None: it is gone.
    """
    for one in orphans:
        assert one.partition is not None, "an orphan has a partition"
        assert one.segment_id is not None, "an orphan has a segment id"
        assert one.start_offset is not None, "an orphan has a start offset"
        if metadata.entry(one.partition, one.segment_id) is not None:
            yield one, "the metadata knows it by now"
            continue
        if (obstacle := permission.why_kept(one.partition)) is not None:
            yield one, obstacle
            continue
        orphan = _stand_in(one.partition, one.segment_id, one.start_offset, 0)
        (base,) = {key.rpartition(".")[0] for key in one.keys}
        if base not in bases_in(storage)(orphan):
            yield one, "with these settings the plugin does not look there"
            continue
        tell(one)
        try:
            storage.delete_log_segment_data(orphan)
            left = [found.key for found in lister.list_objects(base)]
        except RemoteStorageError as error:
            yield one, str(error)
            continue
        yield one, f"still there: {', '.join(left)}" if left else None


def _stand_in(
    partition: TopicIdPartition, segment_id: bytes, start_offset: int, size_bytes: int
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(partition, segment_id),
        start_offset=start_offset,
        end_offset=start_offset,
        max_timestamp_ms=-1,
        broker_id=-1,
        event_timestamp_ms=0,
        segment_size_bytes=size_bytes,
        leader_epochs=(EpochEntry(0, start_offset),),
    )
