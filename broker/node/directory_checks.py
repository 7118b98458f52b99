"""Compares the log directories with the metadata: missing, damaged, or older copies.

Runs once at the start, when the metadata log is open and before any partition is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.node.directories import Directories, DirectoryError, adopt
from broker.node.incarnation_history import (
    Incarnation,
    check_incarnations,
    dump_incarnations,
    next_incarnations,
    read_incarnations,
)
from kafka_protocol.files.meta_properties import META_PROPERTIES
from kafka_protocol.wire.primitives import uuid_to_text
from local_log.checked_files import SIDECAR, CheckedFiles
from local_log.manager.log_dir import INCARNATION_HISTORY, LogDir
from metadata_topic.controller.directories import known_directories
from metadata_topic.image.image import MetadataImage
from runtime.disk import Disk
from runtime.rng import Rng


def writes_sidecars(image: MetadataImage, node_id: int) -> bool:
    """True if the last incarnation of this broker kept sidecars and its incarnation history.

    Apache Kafka keeps neither: such files are then as old as the last incarnation of Tidemark.
    """
    broker = image.brokers.get(node_id)
    return broker is not None and broker.directories_assigned_from >= 0


def without_sidecars(
    image: MetadataImage, node_id: int, directories: Mapping[Path, bytes]
) -> set[Path]:
    """Log directories whose sidecars may be older than their files.

    Apache Kafka keeps no sidecars. A directory that was missing at the first start after an
    incarnation of it may have been written by it.

    Args:
        image: Committed metadata.
        node_id: This broker.
        directories: The id of each.
    """
    broker = image.brokers.get(node_id)
    return {
        path
        for path, directory_id in directories.items()
        if broker is None or broker.last_incarnation_of(directory_id) is None
    }


def settle_directories(
    directories: Directories,
    image: MetadataImage,
    *,
    log_dirs: Sequence[Path],
    node_id: int,
    disk: Disk,
    rng: Rng,
) -> bool:
    """Decide which directories are used.

    Args:
        directories: The directories found; changed: new ones are added, offline ones removed.
        image: Committed metadata.
        log_dirs: `log.dirs`.
        node_id: Of this broker.
        disk: Files.
        rng: Makes ids.

    Returns:
        True if a directory that this broker had is missing or does not work.

    Raises:
        DirectoryError: The metadata directory is damaged, or a copy of another time.
    """
    known = known_directories(image, node_id)
    adopt(directories, known, node_id=node_id, disk=disk, rng=rng)
    compare = writes_sidecars(image, node_id)
    if compare:
        _check_changed(directories)
    # Incarnations are compared in any case: a metadata log that was lost whole has no brokers.
    check_incarnations_of_directories(directories, image, log_dirs, node_id, disk)
    _keep_checksums(directories, disk, compare=compare)
    return bool(directories.offline) or not known <= set(directories.ids.values())


def _check_changed(directories: Directories) -> None:
    for path in sorted(directories.changed):
        reason = (
            f"{path / META_PROPERTIES} is not what was written: bring it back; if it was changed "
            f"by hand and is right, remove {path / SIDECAR}"
        )
        if path == directories.metadata_path:
            raise DirectoryError(reason)
        directories.put_offline(path, reason)


def _keep_checksums(directories: Directories, disk: Disk, *, compare: bool) -> None:
    """Write the sidecars, so that a later change of `meta.properties` is detected."""
    for path in list(directories.ids):
        try:
            CheckedFiles(disk, path, compare=compare).keep(META_PROPERTIES)
        except OSError as error:
            reason = f"{path / SIDECAR} cannot be written: {error}"
            if path == directories.metadata_path:
                raise DirectoryError(reason) from error
            directories.put_offline(path, reason)


def check_incarnations_of_directories(
    directories: Directories,
    image: MetadataImage,
    log_dirs: Sequence[Path],
    node_id: int,
    disk: Disk,
) -> None:
    """Put directories offline that are copies of another time.

    Raises:
        DirectoryError: The metadata directory is the copy.
    """
    broker = image.brokers.get(node_id) if writes_sidecars(image, node_id) else None
    lives: dict[Path, list[Incarnation]] = {}
    expected: dict[Path, bytes] = {}
    for path in log_dirs:
        if path not in directories.ids:
            continue
        try:
            lives[path] = read_incarnations(disk, path)
        except OSError as error:
            reason = f"{path / INCARNATION_HISTORY} cannot be read: {error}"
            if path == directories.metadata_path:
                raise DirectoryError(reason) from error
            directories.put_offline(path, reason)
            continue
        incarnation = None if broker is None else broker.last_incarnation_of(directories.ids[path])
        if incarnation is not None:
            expected[path] = incarnation
    validated = check_incarnations(
        lives,
        expected=expected,
        metadata_end=image.provenance.end_offset,
        metadata_path=directories.metadata_path,
        ids={path: uuid_to_text(directories.ids[path]) for path in lives},
    )
    if validated.metadata_is_old:
        raise DirectoryError(validated.metadata_is_old)
    for path, reason in validated.old.items():
        directories.put_offline(path, reason)


def renew_running_incarnation(directory: LogDir, image: MetadataImage, node_id: int) -> None:
    """Note the last registered incarnation in a directory, if nothing was lost since.

    Call it before a new incarnation is named. An incarnation that is killed before it notes itself
    would leave an older one in the note. It would then count as one that has lost records, although
    its machine runs on.

    Raises:
        OSError: The disk failed.
    """
    broker = image.brokers.get(node_id)
    noted = directory.same_boot_incarnation
    if broker is None or noted == broker.incarnation_id:
        return
    lives = [one.incarnation_id for one in read_incarnations(directory.disk, directory.path)]
    since = lives[lives.index(noted) :] if noted in lives else []
    is_clean = directory.was_clean and directory.broker_epoch == broker.epoch
    if is_clean or broker.incarnation_id in since:
        directory.write_running_incarnation(broker.epoch, broker.incarnation_id)


def write_incarnation(
    disk: Disk, directory: Path, image: MetadataImage, node_id: int, incarnation_id: bytes
) -> None:
    """Name the coming incarnation in a directory, before it registers.

    Survives a power cut on return.

    Raises:
        OSError: The disk failed.
    """
    broker = image.brokers.get(node_id)
    present = None if broker is None else broker.incarnation_id
    new = Incarnation(incarnation_id, image.provenance.end_offset)
    lives = next_incarnations(read_incarnations(disk, directory), present, new)
    disk.atomic_write(directory / INCARNATION_HISTORY, dump_incarnations(lives))
