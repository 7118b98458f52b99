"""Opens a partition directory in any state: survey, decide, apply.

`survey` reads and changes nothing, `verdict` decides and is pure; this module applies the decision.
A log that contradicts the known facts about it is refused, with nothing on disk changed. Record
bytes are never unlinked: they are kept beside the log (`set_aside`), except an incomplete last
batch. All derived files can be rebuilt: only `.log` files, the epochs of remote offsets, and the
checkpoints cannot.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.records.batch import NO_TIMESTAMP
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.errors import LogRefused
from local_log.file_names import (
    CLEANED,
    DELETED,
    EPOCH_CHECKPOINT,
    FUTURE_MARKER,
    LOG,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SWAP,
    TXN_INDEX,
    parse_segment_file,
)
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.producers.snapshots import ProducerSnapshots
from local_log.producers.state import ProducerStates
from local_log.recovery.acceptance import NOTHING, write_accepted
from local_log.recovery.salvage import Salvager, SegmentDamage
from local_log.recovery.set_aside import cut_segment, is_cut_name, set_segment_aside
from local_log.recovery.survey import OpenRequest, Surveyed, Surveyor
from local_log.recovery.verdict import Open, Refused, validate
from local_log.refusal import RefusalFacts, describe
from local_log.segment.reading import (
    CheckStop,
    RecentBatches,
    filler,
    proceed,
    read_segment,
    runs_by_headers,
)
from local_log.segment.recovery import (
    build_producers,
    last_batch,
    note_recent,
    write_indexes,
    write_transaction_index,
)
from local_log.segment.segment import RELATIVE_OFFSET_MAX, LogSegment
from local_log.small_files import SmallFiles
from runtime.disk import Disk

log = logging.getLogger(__name__)

_CHECKPOINT = ".checkpoint"  # the metadata log's snapshots
_OWN_NAMES = frozenset({EPOCH_CHECKPOINT, PARTITION_METADATA, "quorum-state"})
_OWN_PREFIX = "tidemark-"


@dataclass(slots=True)
class OpenedLog:
    """Result of opening a directory.

    Attributes:
        segments: Oldest first, the last one active.
        log_start_known: False if a tiered partition's log start was in a lost checkpoint.
        truncated_bytes: Bytes removed from the log.
        chain_is_dirty: The epoch chain was written and not fsynced.
        chain_lost: Why the epochs below the first segment are unknown, "" if they are known.
        adopted_epoch: See `Accepted`.
        damages: Repaired damages of a log that tolerates them.
    """

    segments: list[LogSegment]
    epochs: LeaderEpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    log_start_known: bool = True
    truncated_bytes: int = 0
    chain_is_dirty: bool = False
    chain_lost: str = ""
    adopted_epoch: int = -1
    damages: Sequence[SegmentDamage] = ()


def refused(topic_partition: TopicPartition, facts: RefusalFacts) -> LogRefused:
    """Make the error of a refused log, with faults and remedy."""
    topic, partition = topic_partition
    return LogRefused(
        "; ".join(map(describe, facts.faults)),
        f"look with `tidemark log inspect {topic} {partition}`, "
        f"take it as it is with `tidemark log accept {topic} {partition}`",
        facts,
    )


class LogOpener:
    """Opens one directory; used once."""

    def __init__(self, disk: Disk, request: OpenRequest, files: SmallFiles) -> None:
        self._disk = disk
        self._request = request
        self._files = files
        self._directory = request.directory
        self._truncated = 0

    def open(self) -> OpenedLog:
        """Open the directory, with repairs where needed.

        Raises:
            LogRefused: It contradicts the known facts; nothing was changed.
            OSError: The disk failed.
        """
        found, damages = self._look()
        verdict = validate(found.survey)
        if isinstance(verdict, Refused):
            raise refused(self._request.topic_partition, verdict.facts)
        self._remember(found, verdict)
        names = self._tidy(found)
        self._take_out(found, verdict)
        snapshots = ProducerSnapshots(self._disk, self._directory, names)
        segments = self._segments(found, verdict)
        for segment in segments:
            segment.has_aborted = segment.path(TXN_INDEX).name in names
        recent = self._make_again(found, segments, snapshots, verdict)
        epochs, is_dirty = self._epochs(found, verdict, segments)
        self._reach(found, segments, verdict)
        snapshots.remove_strays(segment.base_offset for segment in segments)
        snapshots.remove([offset for offset in snapshots.offsets if offset > verdict.log_end])
        producers = build_producers(
            segments,
            snapshots,
            start=verdict.log_start,
            end=verdict.log_end,
            recent=recent,
            check_stop=self._request.check_stop,
        )
        config = self._request.config
        for segment in segments[:-1]:
            segment.release()  # checked: a reader opens it again
        segments[-1].activate(index_bytes=config.segment_index_bytes, now_ms=self._request.now_ms)
        return OpenedLog(
            segments,
            epochs,
            producers,
            snapshots,
            verdict.log_start,
            verdict.log_end,
            verdict.log_start_known,
            self._truncated,
            is_dirty or bool(self._truncated),
            verdict.chain_lost,
            found.survey.accepted.adopted_epoch,
            damages,
        )

    def _look(self) -> tuple[Surveyed, Sequence[SegmentDamage]]:
        """Survey the directory; a log that tolerates damage is repaired first."""
        request = self._request
        found = Surveyor(self._disk, request, self._files).look()
        if not request.salvages:
            return found, ()
        damages = Salvager(self._disk, request.check_stop).repair(found.survey, found.segments)
        if damages:
            found = Surveyor(self._disk, request, self._files).look()
        return found, damages

    # -- removal from the log ----------------------------------------------------------------------

    def _remember(self, found: Surveyed, plan: Open) -> None:
        """Save acceptances before any change, so that a kill does not change the validation."""
        survey = found.survey
        if survey.accepted == NOTHING and not (plan.accepted or plan.holes or plan.is_sparse):
            return
        for fault in plan.accepted:
            log.warning("accepted: path=%s %s", self._directory, describe(fault))
        wanted = survey.accepted.with_holes(plan.holes)
        wanted = replace(wanted, is_sparse=wanted.is_sparse or plan.is_sparse)
        if not plan.accepted:
            wanted = replace(wanted, validation=None)  # no fault is left
        if not plan.adopts:
            wanted = replace(wanted, adopted=None)  # the adopted end is reached
        if wanted != survey.accepted:
            write_accepted(self._disk, self._directory, wanted)

    def _tidy(self, found: Surveyed) -> Sequence[str]:
        """Remove the leftovers of a killed process; complete the last step of a compaction.

        Returns:
            Names of the files in the directory afterwards.
        """
        disk, directory = self._disk, self._directory
        for base_offset in found.replaced:
            self._set_aside(base_offset)
        for name in found.swaps:
            disk.rename(directory / name, directory / name.removesuffix(SWAP))
        if found.swaps:
            disk.fsync_path(directory)
            log.warning("finished a compaction: path=%s files=%d", directory, len(found.swaps))
        leftovers = [
            name
            for name in found.names
            if name.endswith((DELETED, CLEANED, SWAP, ".tmp")) and name not in found.swaps
        ]
        if FUTURE_MARKER in found.names:
            # A power cut must not restore the directory's old name without the marker.
            disk.fsync_path(directory.parent)
            leftovers.append(FUTURE_MARKER)
        for name in leftovers:
            disk.unlink(directory / name)
        names: Sequence[str] = found.names
        if leftovers or found.swaps or found.replaced:
            names = disk.list_dir(directory)
        found_files = [(name, parse_segment_file(name)) for name in names]
        logs = {p[0] for _, p in found_files if p is not None and p[1] == LOG}
        for name, parsed in found_files:
            if parsed is None:
                if not _is_ours(name):
                    log.info("unknown file is left alone: %s", directory / name)
            elif parsed[1] != PRODUCER_SNAPSHOT and parsed[0] not in logs:
                log.warning("index without a log is removed: %s", directory / name)
                disk.unlink(directory / name)
        return names

    def _take_out(self, found: Surveyed, plan: Open) -> None:
        """Set whole segments aside, newest first, then cut."""
        sizes = {segment.base_offset: segment.size_bytes for segment in found.segments}
        for base_offset in reversed(plan.aside):
            self._truncated += sizes[base_offset]
            self._set_aside(base_offset)
        for cut in plan.cuts:
            size = sizes[cut.base_offset] - cut.position
            copy = cut_segment(
                self._disk, self._directory, cut.base_offset, cut.position, keeps=cut.keeps
            )
            self._truncated += size
            log.warning(
                "log is cut: path=%s base_offset=%d kept_bytes=%d cut_bytes=%d later_segments=%d "
                "copy=%s",
                self._directory,
                cut.base_offset,
                cut.position,
                size,
                len(plan.aside),
                copy,
            )
        if plan.log_end == plan.log_start and plan.aside and not plan.cuts:
            log.warning("log begins again: path=%s offset=%d", self._directory, plan.log_end)

    def _set_aside(self, base_offset: int) -> None:
        target = set_segment_aside(self._disk, self._directory, base_offset)
        log.warning("segment is set aside: path=%s", target)

    # -- derived files -----------------------------------------------------------------------------

    def _segments(self, found: Surveyed, plan: Open) -> list[LogSegment]:
        cuts = {cut.base_offset: cut.position for cut in plan.cuts}
        segments = []
        for old in found.segments:
            base = old.base_offset
            is_as_found = type(old) is LogSegment and base not in found.readings
            if is_as_found and base not in cuts and base not in plan.aside:
                segments.append(old)
            elif base not in plan.aside:
                size = cuts.get(base, old.size_bytes)
                segment = LogSegment(self._disk, self._directory, base, size)
                segment.index_interval_bytes = self._request.config.index_interval_bytes
                segments.append(segment)
        return segments

    def _reach(self, found: Surveyed, segments: list[LogSegment], plan: Open) -> None:
        """Extend the log to its planned end, by an empty segment or a filler batch."""
        log_end = plan.log_end
        end = log_end if plan.begins_at is None else plan.begins_at
        if segments:
            last = segments[-1]
            is_as_found = last is found.segments[-1]
            surveyed = found.survey.segments[-1].end_offset if is_as_found else None
            end = last_batch(last).offset if surveyed is None else surveyed
        if segments and end == log_end:
            return
        if end == log_end or log_end - end > RELATIVE_OFFSET_MAX:
            segments.append(self._new_segment(log_end))
            return
        if segments and segments[-1].base_offset == end:
            segments.pop()  # empty: its file is used again
        segment = self._new_segment(end)
        batch = filler(end, log_end)
        segment.append(batch, len(batch), log_end - 1, NO_TIMESTAMP)
        self._disk.fsync(segment.file)
        self._disk.fsync_path(self._directory)
        segments.append(segment)

    def _new_segment(self, base_offset: int) -> LogSegment:
        segment = LogSegment.create(
            self._disk,
            self._directory,
            base_offset,
            index_bytes=self._request.config.segment_index_bytes,
            now_ms=self._request.now_ms,
        )
        segment.index_interval_bytes = self._request.config.index_interval_bytes
        return segment

    def _make_again(
        self,
        found: Surveyed,
        segments: Sequence[LogSegment],
        snapshots: ProducerSnapshots,
        plan: Open,
    ) -> dict[int, RecentBatches]:
        """Rebuild the indexes of every segment that was read whole.

        Returns:
            Recent batches of producers by base offset of the segment, where they are complete.
        """
        start, check_stop, producers = plan.log_start, self._request.check_stop, None
        recent: dict[int, RecentBatches] = {}
        for index, segment in enumerate(segments):
            reading = found.readings.get(segment.base_offset)
            if reading is None:
                producers = None
                continue
            if reading.whole_bytes != segment.size_bytes:
                reading = read_segment(
                    self._disk,
                    segment,
                    index_bytes=self._request.config.segment_index_bytes,
                    stop=segment.size_bytes,
                    check_stop=check_stop,
                )
            write_indexes(self._disk, segment, reading.indexes)
            if reading.recent is not None:
                recent[segment.base_offset] = reading.recent
            if not reading.has_markers:
                self._disk.unlink(segment.path(TXN_INDEX))  # no transaction is aborted in it
                segment.has_aborted = False
                if reading.recent is None:
                    producers = None
                elif producers is not None:
                    note_recent(producers, reading.recent, done=segment.base_offset)
                continue
            if producers is None:
                producers = build_producers(
                    segments[:index],
                    snapshots,
                    start=start,
                    end=segment.base_offset,
                    recent=recent,
                    check_stop=check_stop,
                )
            write_transaction_index(self._disk, segment, producers, check_stop)
        return recent

    def _epochs(
        self, found: Surveyed, plan: Open, segments: Sequence[LogSegment]
    ) -> tuple[LeaderEpochCache, bool]:
        """Return the chain, and whether its file was written without a fsync.

        If entries are only removed, the file need not be written: the next start would remove them
        again. Most starts remove one, of an epoch without records.
        """
        chain = plan.chain
        if chain is None:
            if segments:
                log.warning(
                    "epoch chain is made from the log: path=%s reason=%s",
                    self._directory / EPOCH_CHECKPOINT,
                    plan.chain_problem,
                )
            chain = tuple(chain_of_batches(segments, self._request.check_stop))
        epochs = LeaderEpochCache(chain)
        epochs.truncate_from_end(plan.log_end)
        if plan.log_start_known:
            committed = max(min(self._request.high_watermark, plan.log_end), plan.log_start)
            epochs.truncate_from_start(min(plan.log_start, committed - 1))  # see `chain_start`
        entries = epochs.entries()
        if plan.chain is not None and set(entries) <= set(found.chain_on_disk):
            return epochs, False
        # Durable if remote data depends on it; otherwise the same files give the same chain again.
        durable = self._request.config.remote_storage_enable
        self._files.write(EPOCH_CHECKPOINT, epoch_checkpoint.dump(entries), durable=durable)
        return epochs, not durable


def _is_ours(name: str) -> bool:
    known = name in _OWN_NAMES or name.startswith(_OWN_PREFIX)
    return known or name.endswith(_CHECKPOINT) or is_cut_name(name)


def chain_of_batches(
    segments: Sequence[LogSegment], check_stop: CheckStop = proceed
) -> list[EpochEntry]:
    """Build the chain from the epochs of the batches."""
    epochs = LeaderEpochCache()
    for segment in segments:
        for epoch, start_offset in runs_by_headers(segment, check_stop):
            latest = epochs.latest_epoch
            if latest is None or epoch > latest:
                epochs.assign(epoch, start_offset)
        segment.release()
    return epochs.entries()
