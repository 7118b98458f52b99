"""Opens the partitions in the log directories at the start.

First the directories are listed. Then `placement` chooses for each partition the directory that the
metadata assign, and that one is opened. The others stay unchanged. Several threads do this at once
(`load_run`): partitions share no mutable state except whether a log directory works.
"""

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypedDict

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.meta_properties import dump_partition_metadata, parse_partition_metadata
from kafka_protocol.files.segment_names import (
    LOG,
    parse_partition_dir,
    parse_renamed_dir,
    parse_segment_file,
    partition_dir,
)
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, OFFSETS_TOPIC, ZERO_UUID, TopicPartition
from kafka_protocol.wire.primitives import uuid_to_text
from local_log.checked_files import CheckedFiles, Owner
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError, LogRefused
from local_log.file_names import EPOCH_CHECKPOINT, PARTITION_METADATA, path_of
from local_log.log.partition_log import PartitionLog
from local_log.log.results import LogHooks
from local_log.manager.creation import holds_records, log_files, make_durable
from local_log.manager.future_dirs import (
    FoundFuture,
    is_moved_here,
    look_at_future,
    settle_future,
)
from local_log.manager.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    UNKNOWN,
    LogDir,
)
from local_log.manager.placement import FoundReplica, TargetReplica, place
from local_log.recovery.survey import OpenRequest
from local_log.segment.reading import CheckStop, proceed
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)


TargetFor = Callable[[TopicPartition], TargetReplica | None]

# Another kind of file has the name, or a file is not readable: the error of one partition. Any
# other error means that the disk failed.
_OF_ONE_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition with files here that is not open.

    Attributes:
        directories: Log directories with its files.
        reason: Text for the operator, with the remedy.
        recovery_point: For the checkpoint; UNKNOWN if it is not known.
        foreign: Subset of `directories`: the files there name another partition.
    """

    directories: Sequence[LogDir]
    reason: str
    recovery_point: int = UNKNOWN
    foreign: Sequence[LogDir] = ()


class Unwanted(NamedTuple):
    """A partition directory that the metadata do not assign here.

    Attributes:
        was_removed: The removal of its topic id was read; False: unknown.
    """

    topic_partition: TopicPartition
    directory: LogDir
    was_removed: bool


@dataclass(slots=True)
class Loaded:
    """Outcome for the directories that were found.

    Attributes:
        unwanted: Directories to rename away.
        moved: Partitions in another directory than the metadata say: old one, new one.
        moves: Copies of unfinished moves to other log directories; the moves begin again.
    """

    opened: list[tuple[PartitionLog, LogDir]] = field(default_factory=list)
    refused: dict[TopicPartition, Refused] = field(default_factory=dict)
    unwanted: list[Unwanted] = field(default_factory=list)
    moved: list[tuple[TopicPartition, LogDir, LogDir]] = field(default_factory=list)
    moves: list[FoundFuture] = field(default_factory=list)

    @classmethod
    def of_all(cls, parts: Iterable["Loaded"]) -> "Loaded":
        """Merge parts, in their order."""
        whole = cls()
        for part in parts:
            whole.opened += part.opened
            whole.refused |= part.refused
            whole.unwanted += part.unwanted
            whole.moved += part.moved
            whole.moves += part.moves
        return whole


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One partition directory.

    Attributes:
        topic_id: From `partition.metadata`, otherwise from the sidecar.
        is_named: It is from `partition.metadata`.
    """

    directory: LogDir
    path: Path
    files: CheckedFiles
    topic_id: bytes | None
    is_named: bool


class LoadFacts(TypedDict, total=False):
    """Facts that the caller of a load may have.

    Attributes:
        compare: Compare files with sidecars, see `CheckedFiles`.
        without_sidecars: Log directories in which they are not compared.
        last_broker_epoch: See `LogDir.read_clean_mark`.
        assigned: Partitions that the metadata assign to a log directory, by its id. If the recovery
            points of the directory were lost, those of absent partitions stay unknown.
        removed_topics: Topic ids whose removal was read in the metadata log: their directories are
            deleted. Nothing else proves that a topic is gone.
    """

    compare: bool
    without_sidecars: Collection[Path]
    last_broker_epoch: int | None
    assigned: Mapping[bytes, Collection[TopicPartition]]
    removed_topics: Container[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Parameters of a load; see `LogManager.load_run` and `LoadFacts`.

    Attributes:
        config_for, hooks_for, fail_dir: Called on the threads that open logs.
        own_names: Names of other files that belong in a log directory.
    """

    config_for: Callable[[str], LogConfig]
    hooks_for: Callable[[TopicPartition, LogDir], LogHooks]
    own_names: Container[str]
    fail_dir: Callable[[LogDir, OSError], None]
    wanted: TargetFor | None
    compare: bool = True
    without_sidecars: Collection[Path] = ()
    last_broker_epoch: int | None = None
    assigned: Mapping[bytes, Collection[TopicPartition]] = field(default_factory=dict)
    removed_topics: Container[bytes] = ()


class Loader:
    """Opens partitions, each once, on any thread.

    Attributes:
        check_stop: Raises to end the opening, as after a kill.
    """

    def __init__(self, dirs: Sequence[LogDir], ports: Ports, request: LoadRequest) -> None:
        self._dirs = dirs
        self._disk, self._clock, self._rng = ports.disk, ports.clock, ports.rng
        self._request = request
        self._config_for = request.config_for
        self._fail_dir = request.fail_dir
        self.check_stop: CheckStop = proceed

    def look_into(self, directory: LogDir) -> tuple[list[TopicPartition], list[FoundFuture]]:
        """Read the small files of a log directory, and list its partitions.

        A directory that fails goes offline and has none.

        Returns:
            The partitions, and future directories for `settle`.
        """
        request = self._request
        try:
            directory.prepare(compare=self._compares(directory))
            directory.read_running_incarnation()
            directory.read_clean_mark(request.last_broker_epoch if request.compare else None)
            directory.read_checkpoints()
            if not directory.is_sound(RECOVERY_POINTS):
                unknown = request.assigned.get(directory.directory_id, ())
                directory.entries[RECOVERY_POINTS] = dict.fromkeys(unknown, UNKNOWN)
            return self._partitions_in(directory)
        except OSError as error:
            self._fail_dir(directory, error)
            return [], []

    def _compares(self, directory: LogDir) -> bool:
        request = self._request
        return request.compare and directory.path not in request.without_sidecars

    def _partitions_in(self, directory: LogDir) -> tuple[list[TopicPartition], list[FoundFuture]]:
        """List partition directories; remove leftovers of deletions."""
        found, futures = [], []
        names = self._disk.list_dir(directory.path)
        if any((parse_renamed_dir(name) or ("", ""))[1] == "delete" for name in names):
            # A power cut must not restore the name of a directory after some of its files are
            # deleted.
            self._disk.fsync_path(directory.path)
        for name in names:
            self.check_stop()
            path = directory.path / name
            if name.removesuffix(".tmp") in self._request.own_names:
                continue  # a kill may leave a temporary file; the next write replaces it
            if not self._disk.is_dir(path):
                log.info("unknown file is left alone: %s", path)
                continue
            renamed = parse_renamed_dir(name)
            if renamed is not None:
                if renamed[1] == "delete":
                    self._disk.remove_tree(path)
                elif renamed[1] == "future" and (future := look_at_future(directory, path)):
                    futures.append(future)
                continue
            tp = parse_partition_dir(name)
            if tp is None or partition_dir(tp) != name:
                log.info("unknown directory is left alone: %s", path)
            elif tp.topic != CLUSTER_METADATA_TOPIC:
                found.append(tp)
        return found, futures

    def settle(
        self, futures: Iterable[FoundFuture], found: dict[TopicPartition, list[LogDir]]
    ) -> list[FoundFuture]:
        """Complete or remove future directories that an earlier process left.

        Args:
            futures: Of all log directories.
            found: Partitions with a directory, and where; completed ones are added.

        Returns:
            Unfinished moves, see `Loaded.moves`.
        """
        moves: list[FoundFuture] = []
        # Of two for one partition the later one is swapped in: the other is removed.
        for future in sorted(futures, key=lambda one: one.marker.offset, reverse=True):
            self.check_stop()
            tp = future.marker.topic_partition
            if not future.directory.works or self._is_move(future, found, moves):
                continue
            try:
                if settle_future(future, self._rng.uuid(), is_there=tp in found):
                    found[tp] = [future.directory]
            except OSError as error:
                self._fail_dir(future.directory, error)
        return moves

    def _is_move(
        self,
        future: FoundFuture,
        found: Mapping[TopicPartition, Sequence[LogDir]],
        moves: list[FoundFuture],
    ) -> bool:
        """True if the directory must stay: its move continues, or its source is absent."""
        tp, moved = future.marker.topic_partition, future.marker.moved
        if moved is None:
            return False
        source = next((one for one in self._dirs if one.directory_id == moved.source), None)
        if source in found.get(tp, ()):
            moves.append(future)
            return True
        if tp in found or (source is not None and source.works):
            return False
        reason = f"log directory {uuid_to_text(moved.source)}, its source, is away"
        log.error(Incident.COPY_WAITS.line(partition=tp, path=future.path, reason=reason))
        return True

    # -- one partition

    def load_one(self, tp: TopicPartition, directories: Sequence[LogDir]) -> Loaded:
        """Examine a partition, and open it or leave it unchanged.

        Args:
            tp: The partition.
            directories: Log directories with a partition directory of its name.

        Returns:
            Its outcome.
        """
        candidates, target_for = [], self._request.wanted
        for directory in directories:
            if directory.works:
                try:
                    candidates.append(self._look(tp, directory))
                except _OF_ONE_FILE as error:
                    return refusal(tp, directories, f"its files cannot be read: {error}")
                except OSError as error:
                    self._fail_dir(directory, error)
        if not candidates:
            return refusal(tp, directories, f"{directories[0].path} is offline")
        if target_for is None:
            topic_id = next((one.topic_id for one in candidates if one.topic_id), ZERO_UUID)
            wanted: TargetReplica | None = TargetReplica(
                topic_id, tp.partition, None, was_never_served=topic_id != ZERO_UUID
            )
        else:
            wanted = target_for(tp)
        removed = [one for one in candidates if self._was_removed(one, wanted)]
        outcome = Loaded(unwanted=[Unwanted(tp, one.directory, True) for one in removed])
        candidates = [one for one in candidates if one not in removed]
        if wanted is None:
            outcome.unwanted += [Unwanted(tp, one.directory, False) for one in candidates]
        if wanted is None or not candidates:
            return outcome
        candidates = [self._believed(one, wanted) for one in candidates]
        found = [
            FoundReplica(
                one.directory.directory_id,
                str(one.path),
                one.topic_id,
                None if one.files.owner is None else one.files.owner.partition,
                len(candidates) == 1 or holds_records(self._disk, one.path),
            )
            for one in candidates
        ]
        working = {one.directory_id for one in self._dirs if one.works}
        placement = place(wanted, found, working)
        if placement.offline:
            strange = [
                one.directory
                for one, says in zip(candidates, found, strict=True)
                if not says.fits(wanted)
            ]
            left = [one for one in directories if one not in {each.directory for each in removed}]
            refused = refusal(tp, left, placement.offline, foreign=strange)
            return Loaded.of_all([outcome, refused])
        if placement.opened is not None:
            # A caller without metadata has no facts about replicas served before.
            never_served = target_for is None or _was_never_served(wanted)
            one = candidates[placement.opened]
            opened = self._open(tp, one, wanted, never_served=never_served)
            outcome = Loaded.of_all([outcome, opened])
        outcome.unwanted += [
            Unwanted(tp, candidates[index].directory, False) for index in placement.aside
        ]
        return outcome

    def _was_removed(self, one: _Candidate, wanted: TargetReplica | None) -> bool:
        """True if its topic's removal was read, and no other fact contradicts it."""
        owner = one.files.owner
        return (
            one.is_named
            and one.topic_id in self._request.removed_topics
            and (owner is None or owner.topic_id == one.topic_id)
            and (wanted is None or wanted.directory_id != one.directory.directory_id)
        )

    def _look(self, tp: TopicPartition, directory: LogDir) -> _Candidate:
        path = directory.path / partition_dir(tp)
        files = CheckedFiles(self._disk, path, compare=self._compares(directory))
        try:
            topic_id = parse_partition_metadata(files.read(PARTITION_METADATA))
        except (FileNotFoundError, CorruptFileError) as error:
            log.warning("partition without a topic id: path=%s reason=%s", path, error)
            says = None if files.owner is None else files.owner.topic_id
            return _Candidate(directory, path, files, says, is_named=False)
        return _Candidate(directory, path, files, topic_id, is_named=True)

    def _believed(self, candidate: _Candidate, wanted: TargetReplica) -> _Candidate:
        """Ignore a sidecar of another topic if the partition's own file has the right id."""
        owner = candidate.files.owner
        if owner is None or owner.topic_id == wanted.topic_id:
            return candidate
        try:
            data = self._disk.read_file(candidate.path / PARTITION_METADATA)
            if parse_partition_metadata(data) != wanted.topic_id:
                return candidate
        except (FileNotFoundError, CorruptFileError):
            return candidate
        log.warning("sidecar is that of another topic, and is made again: %s", candidate.path)
        files = CheckedFiles(self._disk, candidate.path, compare=False)
        return _Candidate(
            candidate.directory, candidate.path, files, wanted.topic_id, is_named=True
        )

    def _open(
        self,
        tp: TopicPartition,
        found: _Candidate,
        wanted: TargetReplica,
        *,
        never_served: bool,
    ) -> Loaded:
        directory = found.directory
        noted = next((d for d in self._dirs if d.directory_id == wanted.directory_id), directory)
        config, point = self._config_for(tp.topic), None
        try:
            # After a move while the broker was down the facts are in the former directory.
            home = directory if is_moved_here(directory, found.path) else noted
            log_start = known_log_start(home, tp, config, found.path)
            point = known_recovery_point(home, tp, found.path)
            if point is None and never_served and not log_files(self._disk, found.path):
                point = 0  # the rest of a creation that was killed
            request = OpenRequest(
                tp,
                found.path,
                config,
                self._clock.wall_ms(),
                recovery_point=point,
                log_start=log_start,
                high_watermark=home.entry(HIGH_WATERMARKS, tp) or 0,
                is_clean=directory.was_clean and home.was_clean,
                was_compacted=home.entry(CLEANER_OFFSETS, tp) is not None,
                check_stop=self.check_stop,
                # With other replicas the leader has the lost records; salvage would diverge.
                salvages=tp.topic == OFFSETS_TOPIC and not wanted.has_others,
            )
            hooks = self._request.hooks_for(tp, directory)
            opened = PartitionLog.open(
                request,
                topic_id=wanted.topic_id,
                disk=self._disk,
                hooks=hooks,
                files=found.files,
            )
            has_entry = home.entry(LOG_STARTS, tp) is not None
            opened.log_start_has_no_entry = home.is_sound(LOG_STARTS) and not has_entry
            if point is None:
                opened.flush()  # all was read, and is safe now: the recovery point is known
            self._identify(found, wanted)
            if _was_never_served(wanted):
                # The rest of a killed creation, which may still be lost. The metadata will assign
                # it to this directory, and from then on its files must exist.
                make_durable(self._disk, found.path, with_chain=config.remote_storage_enable)
                self._disk.fsync_path(directory.path)
        except LogRefused as error:
            known = error.facts.flushed_end
            return refusal(tp, [directory], str(error), UNKNOWN if point is None else known)
        except _OF_ONE_FILE as error:
            return refusal(tp, [directory], f"a file of it cannot be used: {error}")
        except (OSError, KafkaStorageError) as error:
            if isinstance(error, OSError):
                self._fail_dir(directory, error)
            return refusal(tp, [directory], f"{directory.path} is offline: {directory.failure}")
        if opened.truncated_bytes:
            log.warning(
                "recovered: partition=%s end=%d cut_bytes=%d",
                tp,
                opened.log_end_offset,
                opened.truncated_bytes,
            )
        outcome = Loaded(opened=[(opened, directory)])
        if noted is not directory:
            log.warning("partition was moved: %s from=%s to=%s", tp, noted.path, directory.path)
            outcome.moved.append((tp, noted, directory))
        return outcome

    def _identify(self, found: _Candidate, wanted: TargetReplica) -> None:
        """Repair the topic id in the files, and bring the sidecar up to date."""
        files = found.files
        if wanted.topic_id == ZERO_UUID:
            return
        files.owner = Owner(wanted.topic_id, wanted.partition)
        if not (found.is_named and found.topic_id == wanted.topic_id):
            log.warning("topic id is written again: path=%s", found.path)
            files.write(PARTITION_METADATA, dump_partition_metadata(wanted.topic_id))
        files.keep(PARTITION_METADATA, EPOCH_CHECKPOINT)


def refusal(
    tp: TopicPartition,
    directories: Sequence[LogDir],
    reason: str,
    recovery_point: int = UNKNOWN,
    foreign: Sequence[LogDir] = (),
) -> Loaded:
    """A partition that stays offline, see `Refused`."""
    log.error(Incident.PARTITION_OFFLINE.line(partition=tp, reason=reason))
    refused = Refused(tuple(directories), reason, recovery_point, tuple(foreign))
    return Loaded(refused={tp: refused})


def _was_never_served(wanted: TargetReplica) -> bool:
    return wanted.directory_id is None and wanted.was_never_served and not wanted.is_lost


def known_log_start(home: LogDir, tp: TopicPartition, config: LogConfig, path: Path) -> int | None:
    """Return the log start in the checkpoint of a log directory; None if unknown.

    Args:
        home: The log directory with the partition's checkpoint entries.
        tp: The partition.
        config: Of its topic.
        path: Of the partition's directory.
    """
    log_start = home.entry(LOG_STARTS, tp)
    if config.remote_storage_enable:
        return log_start
    is_ours = home.files.knows(LOG_STARTS)
    if log_start is None:
        return 0 if is_ours and home.is_sound(LOG_STARTS) else None
    if is_ours and not config.remote_log_delete_on_disable:
        return log_start
    # The first segment may begin above the checkpoint's log start. Either the topic was tiered and
    # its remote part is given up, or Apache Kafka deleted segments before it wrote the checkpoint.
    parsed = map(parse_segment_file, home.disk.list_dir(path))
    first = min((p[0] for p in parsed if p is not None and p[1] == LOG), default=log_start)
    return max(log_start, first)


def known_recovery_point(home: LogDir, tp: TopicPartition, path: Path) -> int | None:
    """Return the offset below which all is flushed; None if unknown.

    Args:
        home: The log directory with the partition's checkpoint entries.
        tp: The partition.
        path: Of the partition's directory.
    """
    point = home.entry(RECOVERY_POINTS, tp)
    if point is not None:
        return point if point >= 0 else None
    if home.is_sound(RECOVERY_POINTS) and home.disk.exists(path_of(path, 0, LOG)):
        return 0  # created since the checkpoint was written
    return None
