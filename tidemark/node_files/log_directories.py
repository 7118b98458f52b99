"""The log directories of a node as its disks and its metadata see them, and the two remedies.

A broker keeps a directory offline that is missing, or that is a copy of another time. A person who
knows better says so here: `accept` takes such a copy as it is, `forget` gives a lost directory up.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.node.directories import Directories, open_directories
from broker.node.incarnation_history import Incarnation, dump_incarnations, read_incarnations
from kafka_protocol.errors import CorruptFileError, TidemarkError
from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from kafka_protocol.wire.primitives import uuid_from_any_text, uuid_to_text
from local_log.manager.log_dir import INCARNATION_HISTORY
from metadata_topic.controller.directories import (
    Forgotten,
    known_directories,
    replicas_of_broker,
)
from metadata_topic.image.image import MetadataImage, is_tiered
from metadata_topic.image.model import DIRECTORY_LOST
from runtime.disk import Disk
from tidemark.node_files.forgetting import forget_as_sole_voter, forget_at_controllers
from tidemark.node_files.offline_topics import read_image
from tidemark.status.pages import read_page

_SHOWN_MAX = 20
_PAGE_S = 2.0
LOST = "lost"
"""What a person calls DIRECTORY_LOST: replicas of a directory whose id was never noted, or last
copies in one that was forgotten."""


class LogDirectoryError(TidemarkError):
    """The command cannot do what was asked; nothing was changed."""


@dataclass(frozen=True, slots=True)
class DirectoryRow:
    """One log directory.

    Attributes:
        id: as text; empty if it is not known.
        path: empty if the directory is in none.
        state: for people.
        replicas: how many the metadata have there.
    """

    id: str
    path: str
    state: str
    replicas: int


def directory_rows(config: BrokerConfig, disk: Disk) -> list[DirectoryRow]:
    """Compare disks and metadata; changes nothing, and works beside a running broker."""
    image, offline = read_image(config, disk), offline_in_the_broker(config)
    counts = Counter(replica.directory_id for replica in replicas_of_broker(image, config.node_id))
    broker = image.brokers.get(config.node_id)
    rows, seen = [], set()
    for path in config.log_dirs:
        directory_id, state = _state_of(path, disk)
        if directory_id is None:
            rows.append(DirectoryRow("", str(path), state, 0))
            continue
        seen.add(directory_id)
        incarnation = None if broker is None else broker.last_incarnation_of(directory_id)
        later = _later_end(disk, path, image)
        if later is not None:
            state = f"written when the metadata log ended at {later}: that log is an older copy"
        elif (
            incarnation is not None
            and path != config.metadata_log_dir
            and not _names(disk, path, incarnation)
        ):
            state = (
                f"of another time: {INCARNATION_HISTORY} does not name the last incarnation of "
                "this broker"
            )
        elif path in offline:
            state = (
                f"there, offline in the running broker: {offline[path]}. Make room on the disk or "
                "repair it, then start the broker again"
            )
        rows.append(
            DirectoryRow(uuid_to_text(directory_id), str(path), state, counts[directory_id])
        )
    for directory_id in sorted(known_directories(image, config.node_id) - seen):
        shown = LOST if directory_id == DIRECTORY_LOST else uuid_to_text(directory_id)
        rows.append(DirectoryRow(shown, "", "missing", counts[directory_id]))
    return rows


def offline_in_the_broker(config: BrokerConfig) -> dict[Path, str]:
    """Why directories are offline in the node that runs, as its page of health says.

    None is named where it does not run, or has no page.
    """
    if config.http_listener is None:
        return {}
    ends_s = time.monotonic() + _PAGE_S
    page = read_page(config.http_listener, config.node_id, lambda: ends_s - time.monotonic())
    found = {}
    for path in config.log_dirs:
        for reason in page.reasons:
            _, sign, why = reason.partition(f"log directory {path} is offline: ")
            if sign:
                found[path] = why
    return found


def _state_of(path: Path, disk: Disk) -> tuple[bytes | None, str]:
    try:
        meta = parse_meta_properties(disk.read_file(path / META_PROPERTIES))
    except FileNotFoundError:
        if disk.is_dir(path) and set(disk.list_dir(path)) - {".lock", "lost+found"}:
            return None, f"cannot be used: it is not empty and has no {META_PROPERTIES}"
        return None, "not formatted"
    except (OSError, CorruptFileError) as error:
        return None, f"cannot be used: {error}"
    return meta.directory_id, "there"


def _names(disk: Disk, path: Path, incarnation: bytes) -> bool:
    return incarnation in [known.incarnation_id for known in read_incarnations(disk, path)]


def _later_end(disk: Disk, path: Path, image: MetadataImage) -> int | None:
    """Where the metadata log ended when this directory was written, if that is beyond its end."""
    ends = [known.metadata_end for known in read_incarnations(disk, path)]
    return next((end for end in ends if end > image.provenance.end_offset), None)


@contextmanager
def stopped(config: BrokerConfig, disk: Disk) -> Iterator[Directories]:
    """Hold the locks of a node's directories: its broker must not run meanwhile.

    Raises:
        DirectoryError: it runs, or they cannot be used.
    """
    directories = open_directories(
        config.log_dirs, metadata_path=config.metadata_log_dir, node_id=config.node_id, disk=disk
    )
    try:
        yield directories
    finally:
        directories.release()


def accept(config: BrokerConfig, directory: str, disk: Disk) -> Path:
    """Take a directory of another time than the metadata as it is: the next start uses it.

    Returns:
        Its path.

    Raises:
        LogDirectoryError: no such directory, or nothing to accept.
    """
    directory_id = parse_directory_id(directory)
    with stopped(config, disk) as directories:
        path = next((p for p, known in directories.ids.items() if known == directory_id), None)
        if path is None:
            raise LogDirectoryError(
                f"log directory {directory} is in no path of log.dirs; "
                "`tidemark directories list` shows which there are"
            )
        image = read_image(config, disk)
        broker = image.brokers.get(config.node_id)
        incarnation = None if broker is None else broker.last_incarnation_of(directory_id)
        is_behind = _later_end(disk, path, image) is not None
        if not is_behind and (incarnation is None or _names(disk, path, incarnation)):
            raise LogDirectoryError(f"log directory {directory} ({path}) is not of another time")
        disk.atomic_write(
            path / INCARNATION_HISTORY,
            dump_incarnations([] if incarnation is None else [Incarnation(incarnation, 0)]),
        )
        return path


def lost_by_forgetting(config: BrokerConfig, directory: str, disk: Disk) -> list[str]:
    """Name the partitions whose records are given up with a directory.

    Raises:
        LogDirectoryError: the directory is there, or the metadata know nothing of it.
        DirectoryError: the node is a controller, and runs.
    """
    directory_id = parse_directory_id(directory)
    for row in directory_rows(config, disk):
        if not row.id and row.state.startswith("cannot be used"):
            raise LogDirectoryError(
                f"log directory {row.path} {row.state}; it may be {directory}: repair it, or take "
                "it "
                "out of log.dirs first"
            )
        if row.path and row.id == uuid_to_text(directory_id):
            raise LogDirectoryError(
                f"log directory {directory} is there ({row.path}): only a missing one is forgotten"
            )
    image = read_image(config, disk)
    lost = [
        f"{replica.topic.name}-{replica.partition}"
        for replica in replicas_of_broker(image, config.node_id)
        if replica.directory_id == directory_id
    ]
    if not lost and directory_id not in known_directories(image, config.node_id):
        raise LogDirectoryError(
            f"log directory {directory} is not known; `tidemark directories list` shows which are"
        )
    if config.is_controller:
        with stopped(config, disk):
            return lost
    return lost


def beyond_the_disk(config: BrokerConfig, lost: list[str], disk: Disk) -> list[str]:
    """Say what forgetting these partitions also takes: what only the remote store still holds."""
    image = read_image(config, disk)
    topics = {partition: partition.rpartition("-")[0] for partition in lost}
    lines = []
    tiered = [
        partition for partition, topic in topics.items() if is_tiered(image.topic_config(topic))
    ]
    if tiered:
        lines.append(
            f"{len(tiered)} of them are tiered ({', '.join(tiered[:_SHOWN_MAX])}"
            f"{', ...' if len(tiered) > _SHOWN_MAX else ''}): what was copied stays in the "
            "remote store; where no replica has local records, `tidemark remote restore-partition` "
            "continues above it once they have begun again."
        )
    if REMOTE_LOG_METADATA_TOPIC in topics.values():
        lines.append(
            f"A part of {REMOTE_LOG_METADATA_TOPIC} is among them: where no other broker has it, "
            "which segments the remote store holds is forgotten too, also of partitions in other "
            "directories."
        )
    return lines


def forget(
    config: BrokerConfig, directory: str, disk: Disk, *, begins_last_copies: bool
) -> Forgotten:
    """Give a lost directory up, see `forget_directory`.

    What begins again does so at the next start, or at once where the broker runs. A node that is a
    controller must be stopped.

    Raises:
        LogDirectoryError, DirectoryError: as `lost_by_forgetting`.
        ForgetError: as `forget_at_controllers`.
    """
    lost_by_forgetting(config, directory, disk)
    directory_id = parse_directory_id(directory)
    if config.is_controller:
        with stopped(config, disk) as directories:
            forgotten = asyncio.run(
                forget_as_sole_voter(
                    config,
                    directories,
                    directory_id,
                    begins_last_copies=begins_last_copies,
                    disk=disk,
                )
            )
        if forgotten is not None:
            return forgotten
    image = read_image(config, disk)
    return forget_at_controllers(config, image, directory_id, begins_last_copies=begins_last_copies)


def parse_directory_id(text: str) -> bytes:
    """Read a directory id, or `lost`.

    Raises:
        LogDirectoryError: it is neither.
    """
    if text == LOST:
        return DIRECTORY_LOST
    try:
        return uuid_from_any_text(text)
    except ValueError as error:
        raise LogDirectoryError(
            f"{text!r} is no directory id (22 characters, as in {META_PROPERTIES}), nor `lost`"
        ) from error
