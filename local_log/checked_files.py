"""The small text files of one directory, each checked against its CRC32C in a sidecar of ours.

Kafka's checkpoints have no checksum: one flipped bit turns log start 100 into 900, and both tiers
delete everything below. The sidecar `tidemark-checksums` has several checksums for each such file.
They belong to the version that was read back from the disk, every later version without an fsync,
and the next version. It is written before the file, so after a kill or a power cut between the two
writes the file still has a listed checksum. A file with any other checksum is damaged.

    tidemark-checksums 1
    owner Zm9vYmFyYmF6cXV4MTIzNA 3
    file leader-epoch-checkpoint 1b2c3d4e 5f607182
    file partition.metadata 99aabbcc
    crc 0a1b2c3d

`owner` (topic id, partition) is in partition directories only; it reveals swapped directories. A
missing or damaged sidecar proves nothing: files are accepted as they are, and the next write makes
a new one.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.sealed import seal, unseal
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from runtime.disk import Disk

log = logging.getLogger(__name__)

SIDECAR: Final = "tidemark-checksums"
_HEAD: Final = "tidemark-checksums 1"


class Owner(NamedTuple):
    """The partition that a directory belongs to."""

    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Content of the sidecar.

    Attributes:
        owner: None in a log directory.
        files: Checksums by file name; a file without an entry is not checked.
    """

    owner: Owner | None
    files: dict[str, tuple[int, ...]]


def dump_sidecar(sidecar: Sidecar) -> bytes:
    """Encode the sidecar; equal facts give equal bytes."""
    lines = [_HEAD]
    if sidecar.owner is not None:
        lines.append(f"owner {uuid_to_text(sidecar.owner.topic_id)} {sidecar.owner.partition}")
    for name in sorted(sidecar.files):
        lines.append(" ".join(["file", name, *(f"{crc:08x}" for crc in sidecar.files[name])]))
    return seal(lines)


def parse_sidecar(data: bytes) -> Sidecar:
    """Decode the sidecar.

    Raises:
        CorruptFileError: Cut, changed, or of another version.
    """
    owner, files = None, {}
    try:
        for line in unseal(data, head=_HEAD):
            kind, name, *rest = line.split(" ")
            if kind == "owner":
                owner = Owner(uuid_from_text(name), int(rest[0]))
            elif kind == "file":
                files[name] = tuple(int(word, 16) for word in rest)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(f"{SIDECAR}: {error}") from error
    return Sidecar(owner, files)


class CheckedFiles:
    """Reads and replaces the small files of one directory.

    Not thread-safe: a caller with several threads holds a lock.

    Attributes:
        owner: Of the directory, from the sidecar; None if it has none.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_is_durable",
        "_is_kept",
        "_saved",
        "_versions",
        "owner",
    )

    def __init__(
        self, disk: Disk, directory: Path, *, compare: bool = True, owner: Owner | None = None
    ) -> None:
        """Read the sidecar.

        Args:
            disk: Of the directory.
            directory: Need not exist yet.
            compare: False if another program without a sidecar (Apache Kafka) may have written the
                files; the present sidecar is ignored then.
            owner: To write if the sidecar has none.

        Raises:
            OSError: The disk failed.
        """
        self._disk = disk
        self._directory = directory
        # Content of the sidecar on the disk, and the checksums that each file may have.
        self._saved: Sidecar | None = None
        self._versions: dict[str, tuple[int, ...]] = {}
        self.owner = owner
        self._is_kept = False
        self._is_durable = False
        if compare:
            self._load()

    def _load(self) -> None:
        try:
            data = self._disk.read_file(self._directory / SIDECAR)
        except FileNotFoundError:
            return
        try:
            sidecar = parse_sidecar(data)
        except CorruptFileError as error:
            log.warning("sidecar is damaged and made again: %s (%s)", self._directory, error)
            return
        self._saved = sidecar
        self._versions = dict(sidecar.files)
        self.owner = sidecar.owner or self.owner
        self._is_kept = True

    @property
    def is_kept(self) -> bool:
        """True if the sidecar is intact, so that a file with another checksum is damaged."""
        return self._is_kept

    def knows(self, name: str) -> bool:
        """True if the sidecar lists this file, so the file existed once."""
        return name in self._versions

    def read(self, name: str) -> bytes:
        """Read a file whole.

        Raises:
            FileNotFoundError: There is no such file.
            CorruptFileError: The sidecar does not list its checksum.
            OSError: The disk failed.
        """
        data = self._disk.read_file(self._directory / name)
        known = self._versions.get(name)
        if known is not None and crc32c(data) not in known:
            raise CorruptFileError(
                f"{self._directory / name} is none of the versions that {SIDECAR} names"
            )
        return data

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a file, after its checksum.

        Args:
            name: Of the file.
            data: Whole content.
            durable: File and checksum survive a power cut on return. Otherwise a power cut may
                leave the old or new version with either sidecar: only for files that can be made
                again.

        Raises:
            OSError: The disk failed.
        """
        path = self._directory / name
        new = crc32c(data)
        before = self._versions.get(name)
        if before is None:
            before = self._found(path)
        self._versions[name] = (*(crc for crc in before if crc != new), new)
        self._save(durable=durable)
        self._disk.atomic_write(path, data, durable=durable)
        if durable:
            self._versions[name] = (new,)  # the next write removes old checksums from the sidecar

    def begin(self, files: Mapping[str, bytes]) -> None:
        """Write the first files of an empty directory, and their sidecar.

        The caller fsyncs the files.

        The sidecar need not be fsynced: after a power cut its only version is complete or missing.

        Raises:
            OSError: The disk failed.
        """
        self._versions = {name: (crc32c(data),) for name, data in files.items()}
        self._saved = Sidecar(self.owner, dict(self._versions))
        for name, data in ((SIDECAR, dump_sidecar(self._saved)), *files.items()):
            file = self._disk.open_empty(self._directory / name)
            self._disk.write_at(file, 0, data)
            file.close()
        self._is_kept = True

    def _found(self, path: Path) -> tuple[int, ...]:
        try:
            return (crc32c(self._disk.read_file(path)),)
        except FileNotFoundError:
            return ()

    def keep(self, *names: str) -> None:
        """Add the present checksums of files that the sidecar does not list.

        Not fsynced: a power cut may lose the sidecar, and a missing one proves nothing.
        """
        for name in names:
            if name not in self._versions and (found := self._found(self._directory / name)):
                self._versions[name] = found
        self._save(durable=False)

    def forget(self, name: str) -> None:
        """Remove a file's checksums: it is deleted, or unchecked until its next write."""
        if self._versions.pop(name, None) is not None:
            self._save(durable=True)

    def set_owner(self, owner: Owner, *, durable: bool = False) -> None:
        """Set the owner of the directory."""
        self.owner = owner
        self._save(durable=durable)

    def _save(self, *, durable: bool) -> None:
        sidecar = Sidecar(self.owner, dict(self._versions))
        # A write of an earlier process may not be durable yet either.
        if sidecar != self._saved or (durable and not self._is_durable):
            path = self._directory / SIDECAR
            self._disk.atomic_write(path, dump_sidecar(sidecar), durable=durable)
            self._saved = sidecar
            self._is_durable = durable
        self._is_kept = True
