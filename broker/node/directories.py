"""Checks that the log directories are this node's, before anything is written.

Each log directory has `meta.properties`: cluster, node and its own id. A broker that starts on the
directories of another node would serve wrong data under a right name, so each such doubt is fatal.
The lock files come first: two processes on one directory would overwrite each other's files.

A directory that cannot be used is offline, and the others are served. Without the metadata
directory there is no start. An empty directory beside formatted ones may be a new disk, or the
mount point of a missing one. `adopt` decides about it once the metadata are known.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_protocol.errors import CorruptFileError, TidemarkError
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
    parse_meta_properties,
)
from kafka_protocol.wire.primitives import uuid_to_text
from local_log.checked_files import CheckedFiles
from runtime.disk import Disk, Lock, LockHeldError
from runtime.incidents import Incident
from runtime.rng import Rng

log = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
_OF_NOBODY: Final = frozenset({LOCK_FILE, "lost+found", META_PROPERTIES + ".tmp"})
"""Allowed in an empty directory; the last one is left by a kill during `adopt`."""


class DirectoryError(TidemarkError):
    """The broker must not start on these directories; the message names both that disagree."""


class DirectoryOffline(TidemarkError):
    """The reason why one directory is not used, for people."""


@dataclass(slots=True)
class Directories:
    """The log directories of this node, locked and checked.

    Attributes:
        cluster_id: 22 characters.
        metadata_path: Directory of the metadata log; always in `ids`.
        ids: Id (16 bytes) of each directory that is used, the metadata log's included.
        locks: Held until the process ends or `release`.
        unformatted: Empty directories, until `adopt` decides on them.
        offline: Why a directory is not used.
        changed: Directories whose `meta.properties` differs from its sidecar. It is evidence only
            if this broker wrote the sidecar last, which the metadata show.
    """

    cluster_id: str
    metadata_path: Path
    ids: dict[Path, bytes]
    locks: dict[Path, Lock]
    unformatted: list[Path] = field(default_factory=list)
    offline: dict[Path, DirectoryOffline] = field(default_factory=dict)
    changed: set[Path] = field(default_factory=set)

    def put_offline(self, path: Path, reason: str) -> None:
        """Use a directory no more."""
        log.error(Incident.DIRECTORY_OFFLINE.line(path=path, error=reason))
        self.offline[path] = DirectoryOffline(reason)
        self.ids.pop(path, None)
        if path in self.locks:
            self.locks.pop(path).release()

    def release(self) -> None:
        """Release all locks."""
        for lock in self.locks.values():
            lock.release()


def open_directories(
    paths: Sequence[Path], *, metadata_path: Path, node_id: int, disk: Disk
) -> Directories:
    """Lock and check the directories of a node; nothing is written but lock files.

    Args:
        paths: `log.dirs`.
        metadata_path: Directory of the metadata log; must be formatted.
        node_id: `node.id` of the configuration.
        disk: Files.

    Raises:
        DirectoryError: The metadata directory is not formatted or cannot be used; any directory is
            locked by another process, or of another node or cluster.
    """
    try:
        if not disk.exists(metadata_path / META_PROPERTIES):
            raise DirectoryError(
                f"log directory {metadata_path} is not formatted: there is no {META_PROPERTIES} in "
                "it; run `tidemark format` first, or bring the file back"
            )
    except OSError as error:
        raise DirectoryError(f"log directory {metadata_path} cannot be used: {error}") from error
    found = Directories("", metadata_path, {}, {})
    metas: dict[Path, MetaProperties] = {}
    try:
        for path in dict.fromkeys([metadata_path, *paths]):
            meta = _look(found, path, disk)
            if meta is not None:
                metas[path] = meta
        found.cluster_id = metas[metadata_path].cluster_id
        _identify(found, metas, node_id)
    except DirectoryError:
        found.release()
        raise
    return found


def _look(found: Directories, path: Path, disk: Disk) -> MetaProperties | None:
    """Lock a directory and read its `meta.properties`; None: it is unformatted or offline."""
    is_metadata = path == found.metadata_path
    try:
        if not is_metadata and not disk.exists(path / META_PROPERTIES):
            if disk.exists(path) and not disk.is_dir(path):
                found.put_offline(path, f"{path} is no directory")
            elif disk.is_dir(path) and set(disk.list_dir(path)) - _OF_NOBODY:
                found.put_offline(
                    path,
                    f"it is not empty and has no {META_PROPERTIES}: its owner is unknown. "
                    "Bring that file back",
                )
            else:
                found.unformatted.append(path)
            return None
        found.locks[path] = _lock(path, disk)
        if is_changed(path, disk):
            found.changed.add(path)
        return _read(path / META_PROPERTIES, disk)
    except DirectoryError:
        raise
    except (OSError, CorruptFileError) as error:
        if is_metadata:
            raise DirectoryError(f"log directory {path} cannot be used: {error}") from error
        found.put_offline(path, str(error))
        return None


def is_changed(path: Path, disk: Disk) -> bool:
    """True if `meta.properties` matches no version in its sidecar."""
    try:
        CheckedFiles(disk, path).read(META_PROPERTIES)
    except CorruptFileError:
        return True
    return False


def _lock(path: Path, disk: Disk) -> Lock:
    try:
        return disk.lock(path / LOCK_FILE)
    except LockHeldError as error:
        raise DirectoryError(
            f"log directory {path} is locked by {error.holder} ({path / LOCK_FILE}); is a node "
            "already running on it?"
        ) from None


def _identify(found: Directories, metas: dict[Path, MetaProperties], node_id: int) -> None:
    """Compare every `meta.properties` with the configuration and with the others."""
    metadata_file = found.metadata_path / META_PROPERTIES
    # Undamaged ones first: a damaged one may bear the id of another, which keeps it.
    for path in sorted(metas, key=lambda path: path in found.changed):
        file, meta = path / META_PROPERTIES, metas[path]
        twin = next((one for one, known in found.ids.items() if known == meta.directory_id), None)
        is_other = meta.node_id != node_id or meta.cluster_id != found.cluster_id
        is_wrong = is_other or meta.directory_id is None or twin is not None
        if is_wrong and path in found.changed and path != found.metadata_path:
            found.put_offline(path, f"{file} is damaged: bring it back")
            continue
        if meta.node_id != node_id:
            raise DirectoryError(
                f"node.id={node_id} is configured, but {file} belongs to node.id={meta.node_id}"
            )
        if meta.cluster_id != found.cluster_id:
            raise DirectoryError(
                f"the log directories belong to two clusters: {metadata_file} has "
                f"cluster.id={found.cluster_id}, {file} has cluster.id={meta.cluster_id}"
            )
        if meta.directory_id is None:
            raise DirectoryError(f"{file} has no directory.id")
        if twin is not None:
            raise DirectoryError(f"{file} has the same directory.id as {twin / META_PROPERTIES}")
        found.ids[path] = meta.directory_id


def _read(file: Path, disk: Disk) -> MetaProperties:
    """Read and parse the file.

    Raises:
        CorruptFileError, OSError: Naming the file.
    """
    try:
        return parse_meta_properties(disk.read_file(file))
    except CorruptFileError as error:
        raise CorruptFileError(f"{file} cannot be understood: {error}") from error


def adopt(
    directories: Directories, known: Collection[bytes], *, node_id: int, disk: Disk, rng: Rng
) -> None:
    """Make empty directories new disks of this node, unless one of its directories is missing.

    Then an empty one may be the mount point of the missing one. Partitions that begin in it would
    hide its records, and would lie below the mount when the disk is back.

    Args:
        directories: Gets the new ones, or the reason why they are offline.
        known: Ids of this broker's directories in the metadata.
        node_id: Of this broker.
        disk: Files.
        rng: Makes ids.
    """
    unformatted, directories.unformatted = directories.unformatted, []
    missing = [uuid_to_text(one) for one in set(known) - set(directories.ids.values())]
    for path in unformatted:
        if missing:
            directories.put_offline(
                path,
                f"it is not formatted, while log directory {', '.join(sorted(missing))} is "
                "missing: is a disk not mounted? `tidemark format --ignore-formatted` makes it a "
                "new directory",
            )
            continue
        try:
            disk.make_dirs(path)
            directories.locks[path] = _lock(path, disk)
            directory_id = rng.uuid()
            meta = MetaProperties(directories.cluster_id, node_id, directory_id)
            disk.atomic_write(path / META_PROPERTIES, dump_meta_properties(meta))
        except OSError as error:
            directories.put_offline(path, str(error))
            continue
        directories.ids[path] = directory_id
        log.info("new log directory: path=%s", path)
