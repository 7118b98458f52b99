"""Removal of partition directories: renamed now, durably, and unlinked later or kept."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kafka_protocol.files.segment_names import partition_dir, renamed_dir
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.manager.checkpoints import Checkpoints
from local_log.manager.deletion import DelayedDeletion, Removal
from local_log.manager.dir_failures import DirFailures
from local_log.manager.hosted_logs import HostedLogs
from local_log.manager.loading import Loaded, Unwanted
from local_log.manager.log_dir import CHECKPOINTS, LogDir
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)


class LogRemoval:
    """Removes deleted partitions, and those that are not in the metadata."""

    def __init__(
        self,
        ports: Ports,
        hosted: HostedLogs,
        checkpoints: Checkpoints,
        deletion: DelayedDeletion,
        failures: DirFailures,
        config_for: Callable[[str], LogConfig],
    ) -> None:
        self._disk, self._rng = ports.disk, ports.rng
        self._hosted, self._checkpoints = hosted, checkpoints
        self._deletion, self._failures = deletion, failures
        self._config_for = config_for
        self._unwanted: list[Unwanted] = []
        self._moved: list[tuple[TopicPartition, LogDir, LogDir]] = []

    # -- deletion -------------------------------------------------------------------------------

    def delete(self, *partitions: TopicPartition) -> int:
        """Delete logs: their directories are renamed now and removed later.

        Also partitions that are offline because of their files; files that name another partition
        are put aside and kept.

        Returns:
            Number of logs that were here.
        """
        removal = Removal()
        self.let_go(partitions, removal)
        self.remove(removal)
        return removal.count

    def let_go(self, partitions: Iterable[TopicPartition], removal: Removal) -> None:
        """Close and drop logs, on the loop.

        `remove` then renames their directories, on a pool thread. Until that is done no log may be
        created under these names.
        """
        for tp in partitions:
            log, refused = self._hosted.get(tp), self._hosted.refused.get(tp)
            foreign = () if refused is None else refused.foreign
            # The topic is no longer in the metadata: only its logs have its settings.
            config = log.config if log else self._config_for(tp.topic)
            directories = self._hosted.take_out(tp)
            removal.count += bool(directories)
            for directory in directories:
                if directory.works:
                    suffix = "stray" if directory in foreign else "delete"
                    target = directory.path / renamed_dir(tp, self._rng.uuid(), suffix)
                    removal.names.setdefault(directory, []).append((tp, target))
                    if suffix == "delete":
                        waiting = removal.due.setdefault(directory, {})
                        waiting.setdefault(config.file_delete_delay_ms, []).append(target)

    def remove(self, removal: Removal) -> None:
        """Rename directories away, durably; their content is unlinked later."""
        for directory, names in removal.names.items():
            renames = [(directory.path / partition_dir(tp), target) for tp, target in names]
            stale = directory.forget([tp for tp, _ in names])
            written = dict.fromkeys([*CHECKPOINTS, *stale])  # in an order that a seed replays
            if self._rename(renames, directory) and self._checkpoints.write(directory, written):
                for delay_ms, targets in removal.due.get(directory, {}).items():
                    self._deletion.later(targets, delay_ms)

    def _rename(self, renames: Sequence[tuple[Path, Path]], directory: LogDir) -> bool:
        try:
            for source, target in renames:
                self._disk.rename(source, target)
            self._disk.fsync_path(directory.path)
        except OSError as error:
            self._failures.blame(directory, error)
            return False
        return True

    # -- after a start --------------------------------------------------------------------------

    def note(self, loaded: Loaded) -> None:
        """Take the directories that a start found in the wrong place."""
        self._unwanted, self._moved = loaded.unwanted, loaded.moved

    def moved_to(self) -> set[LogDir]:
        """Directories to which partitions were moved by hand, until `set_aside`."""
        return {directory for _, _, directory in self._moved}

    def set_aside(self) -> list[Path]:
        """Rename away directories that `load` found not to be partitions of this broker.

        Only those of a topic whose removal was read are deleted. Called after the metadata have the
        directories of all partitions.

        Returns:
            New paths of the kept ones.
        """
        moved, self._moved = self._moved, []
        for tp, home, _ in moved:
            stale = home.forget([tp])
            if home.works:
                self._checkpoints.write(home, stale)
        unwanted, self._unwanted = self._unwanted, []
        renames: dict[LogDir, list[tuple[Path, Path]]] = {}
        removed: set[Path] = set()
        for tp, directory, was_removed in unwanted:
            if directory.works:
                suffix = "delete" if was_removed else "stray"
                target = directory.path / renamed_dir(tp, self._rng.uuid(), suffix)
                if was_removed:
                    log.info("its topic was removed: partition=%s path=%s", tp, target)
                    removed.add(target)
                else:
                    log.error(Incident.PUT_ASIDE.line(partition=tp, path=target))
                pair = directory.path / partition_dir(tp), target
                renames.setdefault(directory, []).append(pair)
        done = [pairs for home, pairs in renames.items() if self._rename(pairs, home)]
        targets = [target for pairs in done for _, target in pairs]
        self._deletion.later([one for one in targets if one in removed], 0)  # they have no readers
        return [one for one in targets if one not in removed]
