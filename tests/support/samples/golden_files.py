"""The golden folder, and the directories in it that lie packed in the repository."""

import hashlib
import shutil
import tarfile
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ARCHIVE = GOLDEN / "directories.tar.xz"
UNPACKED = GOLDEN / ".unpacked"
"""Which archive the directories are of; written last."""


def unpack() -> None:
    """Put the directories beside their archive, unless they are of this one.

    For one process at a time: pytest's own, before it starts workers.
    """
    digest = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()
    if UNPACKED.exists() and UNPACKED.read_text() == digest:
        return
    UNPACKED.unlink(missing_ok=True)
    with tarfile.open(ARCHIVE) as archive:
        for name in {member.name.split("/")[0] for member in archive}:
            shutil.rmtree(GOLDEN / name, ignore_errors=True)
        archive.extractall(GOLDEN, filter="data")
    UNPACKED.write_text(digest)
