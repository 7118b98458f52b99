"""Whose directories are these? Checked before anything is written.

Every log directory carries `meta.properties`: cluster, node and its own id. A broker that starts on
the directories of another node would serve wrong data under a right name, so each doubt is fatal.
The lock files come first: two processes on one directory would write over each other.

As in Kafka, an empty directory beside formatted ones is a new disk, and is given an id.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
    parse_meta_properties,
)
from runtime.dice import Dice
from runtime.disk import Disk, Lock, LockHeldError

log = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"


class DirectoryError(Exception):
    """The broker must not start on these directories; the message names both sides of the clash."""


@dataclass(frozen=True, slots=True)
class Directories:
    """The log directories of this node, locked and checked.

    Attributes:
        cluster_id: 22 characters.
        ids: id (16 bytes) of each directory, the metadata log's included.
        locks: held until the process ends or `release`.
    """

    cluster_id: str
    ids: dict[Path, bytes]
    locks: Sequence[Lock]

    def release(self) -> None:
        """Give the directories up."""
        for lock in self.locks:
            lock.release()


def open_directories(
    paths: Sequence[Path], *, metadata_path: Path, node_id: int, disk: Disk, dice: Dice
) -> Directories:
    """Lock and check the directories of a node.

    Args:
        paths: `log.dirs`.
        metadata_path: where the metadata log lies; must be formatted.
        node_id: `node.id` of the configuration.
        disk: files.
        dice: makes the ids of new directories.

    Raises:
        DirectoryError: not formatted, locked by another process, or of another node or cluster.
    """
    every = list(dict.fromkeys([metadata_path, *paths]))
    if not disk.exists(metadata_path / META_PROPERTIES):
        raise DirectoryError(
            f"log directory {metadata_path} is not formatted: there is no {META_PROPERTIES} in it; "
            "run `tidemark format` first"
        )
    formatted = [path for path in every if disk.exists(path / META_PROPERTIES)]
    new = [path for path in every if path not in formatted]
    for path in new:
        if disk.is_dir(path) and set(disk.list_dir(path)) - {LOCK_FILE, "lost+found"}:
            raise DirectoryError(
                f"log directory {path} is not empty and has no {META_PROPERTIES}: whose it is "
                "cannot be told"
            )
    locks = [_lock(path, disk) for path in formatted]
    try:
        ids, cluster_id = _identify(formatted, node_id, disk)
        for path in new:
            locks.append(_adopt(path, cluster_id, node_id, disk, ids, dice))
    except DirectoryError:
        for lock in locks:
            lock.release()
        raise
    return Directories(cluster_id, ids, locks)


def _lock(path: Path, disk: Disk) -> Lock:
    try:
        return disk.lock(path / LOCK_FILE)
    except LockHeldError:
        raise DirectoryError(
            f"log directory {path} is locked by another process ({path / LOCK_FILE}); is a broker "
            "already running on it?"
        ) from None
    except OSError as error:
        raise DirectoryError(f"log directory {path} cannot be used: {error}") from error


def _identify(paths: Sequence[Path], node_id: int, disk: Disk) -> tuple[dict[Path, bytes], str]:
    """Read every `meta.properties` and compare it with the configuration and with the others."""
    ids: dict[Path, bytes] = {}
    first: tuple[Path, str] | None = None
    for path in paths:
        file = path / META_PROPERTIES
        meta = _read(file, disk)
        if meta.node_id != node_id:
            raise DirectoryError(
                f"node.id={node_id} is configured, but {file} belongs to node.id={meta.node_id}"
            )
        if first is None:
            first = (file, meta.cluster_id)
        elif meta.cluster_id != first[1]:
            raise DirectoryError(
                f"the log directories belong to two clusters: {first[0]} has "
                f"cluster.id={first[1]}, {file} has cluster.id={meta.cluster_id}"
            )
        if meta.directory_id is None:
            raise DirectoryError(f"{file} has no directory.id")
        twin = next((other for other, known in ids.items() if known == meta.directory_id), None)
        if twin is not None:
            raise DirectoryError(f"{file} has the same directory.id as {twin / META_PROPERTIES}")
        ids[path] = meta.directory_id
    assert first is not None, "the metadata directory is formatted"
    return ids, first[1]


def _read(file: Path, disk: Disk) -> MetaProperties:
    try:
        return parse_meta_properties(disk.read_file(file))
    except CorruptFileError as error:
        raise DirectoryError(f"{file} cannot be understood: {error}") from error
    except OSError as error:
        raise DirectoryError(f"{file} cannot be read: {error}") from error


def _adopt(
    path: Path, cluster_id: str, node_id: int, disk: Disk, ids: dict[Path, bytes], dice: Dice
) -> Lock:
    """Make a new, empty directory one of this node's."""
    try:
        disk.make_dirs(path)
        lock = _lock(path, disk)
        directory_id = dice.uuid()
        meta = MetaProperties(cluster_id, node_id, directory_id)
        disk.atomic_write(path / META_PROPERTIES, dump_meta_properties(meta))
    except OSError as error:
        raise DirectoryError(f"log directory {path} cannot be used: {error}") from error
    ids[path] = directory_id
    log.info("new log directory: path=%s", path)
    return lock
