"""Tiered topics whose removal this broker has read, in a file of its own.

The image has a list of them, which controllers and snapshots of Tidemark keep. Controllers of
Apache Kafka do not have it: a snapshot from one of them replaces the log with the removal in it. So
a topic of the list stays in this file until the remote store has no data of it.

    tidemark-removed-topics 1
    cluster Zm9vYmFyYmF6cXV4MTIzNA
    AAAAAAAAAAAAAAAAAAAAAQ
    AAAAAAAAAAAAAAAAAAAAAg
    crc 0a1b2c3d

Written as a whole (temp, fsync, rename), before a fetched snapshot replaces the log, and before the
tier gets the image. A file that is missing, damaged or of another cluster proves nothing: the
topics in it are unknown, and their data is kept.

Source: docs/tiering.md, topic deletion.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.sealed import seal, unseal
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from runtime.disk import Disk
from runtime.executors import Pool, make_mutex
from runtime.incidents import Incident

log = logging.getLogger(__name__)

FILE_NAME: Final = "tidemark-removed-topics"
_HEAD: Final = f"{FILE_NAME} 1"


Noted = dict[bytes, None]
"""Topic ids (16 raw bytes), in the order in which they were noted."""


def dump(cluster_id: str, noted: Iterable[bytes]) -> bytes:
    """Write the file."""
    return seal([_HEAD, f"cluster {cluster_id}", *map(uuid_to_text, noted)])


def parse(data: bytes) -> tuple[str, list[bytes]]:
    """Read the file: its cluster id, and the topic ids.

    Raises:
        CorruptFileError: Cut, changed, or of another version.
    """
    try:
        (cluster, *topic_ids) = unseal(data, head=_HEAD)
        return cluster.removeprefix("cluster "), [uuid_from_text(one) for one in topic_ids]
    except ValueError as error:
        raise CorruptFileError(f"{FILE_NAME}: {error}") from error


class RemovedTopicsFile:
    """The file of removed tiered topics.

    The event loop only queues changes; all work that grows with the topics runs on the pool.

    Attributes:
        are_listed: True if the active controller keeps a list of removed topics as well.
    """

    def __init__(self, directory: Path, cluster_id: str, disk: Disk, pool: Pool) -> None:
        """Do not read before `read`; `cluster_id` is that of this broker."""
        self._path, self._cluster_id = directory / FILE_NAME, cluster_id
        self._disk, self._pool = disk, pool
        self._changes: deque[Callable[[Noted], None]] = deque()
        self._writing = make_mutex()
        self._is_write_queued = False
        self.are_listed: Callable[[], bool] = lambda: True
        self._noted: Noted = {}
        self._on_disk: Noted = {}

    def read(self) -> None:
        """Read the file, on a thread that may wait, before any change is queued.

        Raises:
            OSError: The disk failed.
        """
        try:
            cluster_id, noted = parse(self._disk.read_file(self._path))
        except FileNotFoundError:
            return
        except CorruptFileError as error:
            log.warning("removed topics: what was noted is lost: path=%s: %s", self._path, error)
            return
        if cluster_id != self._cluster_id:
            log.warning("removed topics: path=%s is of cluster %s", self._path, cluster_id)
            return
        self._noted, self._on_disk = dict.fromkeys(noted), dict.fromkeys(noted)

    # -- changes; on the event loop

    def begin(self, image: MetadataImage) -> None:
        """Note the list of an image that came without a delta."""
        self._note(partial(_put, list(image.removed_tiered_topics)))

    def follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Note the changes of a delta; a subscriber of the metadata node."""
        if delta.tiered_removals:
            self._note(partial(_take_list, delta.tiered_removals))

    def forget(self, topic_id: bytes) -> None:
        """Note a removed topic by command."""
        self._note(partial(_put, [topic_id]))

    def drop(self, topic_ids: Collection[bytes]) -> None:
        """Drop these: the store has no data of them, or an operator takes `forget` back."""
        self._note(partial(_drop, topic_ids))

    def _note(self, change: Callable[[Noted], None]) -> None:
        self._changes.append(change)
        if not self._is_write_queued:
            self._is_write_queued = True
            self._pool.submit(self._write)

    def _write(self) -> None:
        try:
            with self._writing:  # at most one more waits here: other work needs these threads, too
                self._is_write_queued = False  # later changes queue a write of their own
                self._keep()
        except OSError as error:
            log.error(Incident.REMOVED_TOPICS.line(error=str(error)))  # noqa: TRY400

    # -- the disk

    async def kept(self, existing: Container[bytes] = ()) -> list[bytes]:
        """Return the ids on the disk, with all changes that came before this call.

        Args:
            existing: Ids that exist in the present image, which was confirmed at the quorum's high
                watermark. Such an id in the file means that an earlier log replaced the one with
                its removal. Later changes are of a later image.

        Raises:
            OSError: The disk failed; the changes are written with the next call.
        """
        self._changes.append(partial(_drop_existing, existing))
        return await self._pool.run(self.keep)

    def keep(self) -> list[bytes]:
        """Write the changes, and return the ids on the disk; on a thread that may wait."""
        with self._writing:
            return self._keep()

    def _keep(self) -> list[bytes]:
        while self._changes:
            self._changes[0](self._noted)  # a failing one stays in the queue
            self._changes.popleft()
        if self._noted != self._on_disk:
            self._disk.atomic_write(self._path, dump(self._cluster_id, self._noted))
            self._on_disk = dict(self._noted)
        return list(self._on_disk)


def _put(topic_ids: Iterable[bytes], noted: Noted) -> None:
    noted.update(dict.fromkeys(topic_ids))


def _drop(topic_ids: Iterable[bytes], noted: Noted) -> None:
    for topic_id in topic_ids:
        noted.pop(topic_id, None)


def _drop_existing(existing: Container[bytes], noted: Noted) -> None:
    if back := [one for one in noted if one in existing]:
        first = uuid_to_text(back[0])
        log.warning("topics are there again: count=%d first_id=%s", len(back), first)
        _drop(back, noted)


def _take_list(removals: Mapping[bytes, bool], noted: Noted) -> None:
    _put((one for one, is_listed in removals.items() if is_listed), noted)
    _drop((one for one, is_listed in removals.items() if not is_listed), noted)
