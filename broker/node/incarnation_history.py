"""History of this broker's incarnations in each log directory, by which an old copy is found.

Each start makes an incarnation id and registers under it. Before that it writes the id into
`tidemark-lives` of each working log directory, beside the id in the metadata. So a directory that
took part in the last registration has its id. A directory without it was put back from an older
copy, or belongs to an older copy of the metadata.

    tidemark-lives 1
    Zm9vYmFyYmF6cXV4MTIzNA 4711
    crc 0a1b2c3d

The number behind each id is the end of the metadata log when it was written. If it is above the
present end of the metadata log, the metadata log is the older copy.
Two kinds of copies are not found: one of all directories taken at the same moment, and one taken
within an incarnation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.sealed import seal, unseal
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from local_log.manager.log_dir import INCARNATION_HISTORY
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from runtime.disk import Disk

_HEAD: Final = "tidemark-lives 1"


class Incarnation(NamedTuple):
    """One incarnation of this broker.

    Attributes:
        incarnation_id: Registered under, or about to be.
        metadata_end: End offset (exclusive) of the metadata log when the id was written.
    """

    incarnation_id: bytes
    metadata_end: int


def dump_incarnations(lives: Sequence[Incarnation]) -> bytes:
    """Write the file, oldest incarnation first."""
    lines = [
        _HEAD,
        *(
            f"{uuid_to_text(incarnation.incarnation_id)} {incarnation.metadata_end}"
            for incarnation in lives
        ),
    ]
    return seal(lines)


def parse_incarnations(data: bytes) -> list[Incarnation]:
    """Read the file.

    Raises:
        CorruptFileError: Cut, changed, or of another version.
    """
    try:
        words = [line.split(" ") for line in unseal(data, head=_HEAD)]
        return [Incarnation(uuid_from_text(text_id), int(offset)) for text_id, offset in words]
    except ValueError as error:
        raise CorruptFileError(f"{INCARNATION_HISTORY}: {error}") from error


def read_incarnations(disk: Disk, directory: Path) -> list[Incarnation]:
    """Read the incarnations of a directory, oldest first.

    Empty if the file is missing or damaged, which proves nothing.

    Raises:
        OSError: The disk failed.
    """
    try:
        return parse_incarnations(disk.read_file(directory / INCARNATION_HISTORY))
    except (FileNotFoundError, CorruptFileError):
        return []


def next_incarnations(
    found: Sequence[Incarnation], present: bytes | None, new: Incarnation
) -> list[Incarnation]:
    """Return the incarnations to write before registering.

    Args:
        found: Of the directory.
        present: The incarnation id in the metadata, None if this broker was never registered. Only
            earlier ones are left out: a later one may be registered still.
        new: About to be registered.
    """
    ids = [incarnation.incarnation_id for incarnation in found]
    kept = list(found)
    if present is not None:
        at = ids.index(present) if present in ids else 0
        kept = list(found[at:])
        if present not in ids:
            kept.insert(0, Incarnation(present, new.metadata_end))
    return [*kept, new]


@dataclass(frozen=True, slots=True)
class IncarnationsVerdict:
    """The result of comparing the directories with the metadata.

    Attributes:
        old: Directories of another time, each with the reason, for people.
        metadata_is_old: Why the metadata directory is the one of another time; empty if it is not.
    """

    old: Mapping[Path, str]
    metadata_is_old: str = ""


def check_incarnations(
    lives: Mapping[Path, Sequence[Incarnation]],
    *,
    expected: Mapping[Path, bytes],
    metadata_end: int,
    metadata_path: Path,
    ids: Mapping[Path, str],
) -> IncarnationsVerdict:
    """Compare the incarnations in the directories with the metadata.

    Args:
        lives: Incarnations in each working directory. The metadata directory, if it is one of them,
            always has the age of its metadata log.
        expected: Id of the last incarnation that worked with each directory, where the metadata
            have it.
        metadata_end: End offset (exclusive) of the metadata log as it was found. Each start as
            controller writes to it, so after some refused starts an old copy would look newer.
        metadata_path: Directory of the metadata log.
        ids: Directory id of each, as text.
    """
    for path, found in lives.items():
        later = [incarnation for incarnation in found if incarnation.metadata_end > metadata_end]
        if later:
            return IncarnationsVerdict(
                {},
                f"the metadata log in {metadata_path / METADATA_DIRECTORY} ends at offset "
                f"{metadata_end}, and log directory {path} was written when it ended at "
                f"{later[-1].metadata_end}: the metadata directory is an older copy. Put the "
                "newest copy of it back; without one, "
                "what was changed since is lost, and each such log directory is taken as it is by "
                f"`tidemark directories accept {ids[path]}`",
            )
    old = {
        path: f"it does not name the last incarnation of this broker ({INCARNATION_HISTORY}): it "
        "is a copy of another "
        "time. Put the newest copy back, or take it as it is with `tidemark directories accept "
        f"{ids[path]}`"
        for path, incarnation in expected.items()
        if path != metadata_path and incarnation not in [one.incarnation_id for one in lives[path]]
    }
    if old and len(old) == len(expected):
        shown = ", ".join(str(path) for path in old)
        return IncarnationsVerdict(
            {},
            f"no log directory ({shown}) names the last incarnation of this broker: the metadata "
            f"directory {metadata_path} is of another time. Put directories of one time back, or "
            "take these as they are with `tidemark directories accept ID`",
        )
    return IncarnationsVerdict(old)
