"""The golden folder, and the directories in it that lie packed in the repository."""

import fcntl
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ARCHIVE = "directories.tar.xz"
MARKER = ".unpacked"
"""The digest of the archive that was unpacked, and its files with their sizes; written last."""
TEMPORARY = ".unpacking"


def unpack(golden: Path = GOLDEN) -> None:
    """Put the directories beside their archive, unless its files are there, no more and no fewer.

    Processes that do so at the same time wait for each other.

    Raises:
        pytest.UsageError: they are not there, and cannot be written.
    """
    archive, marker, temporary = (golden / name for name in (ARCHIVE, MARKER, TEMPORARY))
    with _locked(golden):
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        try:
            marked = json.loads(marker.read_text())
        except (FileNotFoundError, ValueError):
            marked = {"digest": None, "files": {}}
        tops = _tops(marked["files"])
        if (
            marked["digest"] == digest
            and _files(golden, tops) == marked["files"]
            and not temporary.exists()
        ):
            return
        with tarfile.open(archive) as tar:
            files = {member.name: member.size for member in tar if member.isfile()}
            try:
                shutil.rmtree(temporary, ignore_errors=True)
                (temporary / "old").mkdir(parents=True)
                tar.extractall(temporary / "new", filter="data")
                for top in tops | _tops(files):
                    if (golden / top).exists():
                        (golden / top).rename(temporary / "old" / top)
                    if (temporary / "new" / top).exists():
                        (temporary / "new" / top).rename(golden / top)
                shutil.rmtree(temporary)
                marker.write_text(json.dumps({"digest": digest, "files": files}))
            except OSError as error:
                if _files(golden, _tops(files)) != files:
                    raise pytest.UsageError(f"{archive} cannot be unpacked: {error}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY)  # a lock file could not be made in a read-only checkout
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _tops(names: Iterable[str]) -> set[str]:
    return {name.split("/")[0] for name in names}


def _files(golden: Path, tops: set[str]) -> dict[str, int]:
    """The files of these directories and their sizes, as the archive names them."""
    paths = (
        Path(at, name) for top in tops for at, _, names in os.walk(golden / top) for name in names
    )
    return {str(path.relative_to(golden)): path.stat().st_size for path in paths}
