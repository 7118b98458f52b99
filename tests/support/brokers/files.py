"""Files below a directory that a running broker works in: some vanish while they are looked for."""

import os
import shutil
from contextlib import suppress
from pathlib import Path


def files_below(root: Path) -> list[Path]:
    """Every file, also while others are deleted: `Path.rglob` fails then."""
    return [Path(folder) / name for folder, _, names in os.walk(root) for name in names]


def contents(root: Path) -> dict[str, bytes]:
    """Every file that stays long enough to be read, by its path below the directory."""
    found = {}
    for path in files_below(root):
        with suppress(FileNotFoundError):
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def copy_as_it_changes(source: Path, target: Path) -> None:
    """Copy a directory as a tool for backups does: what is deleted meanwhile is excluded."""
    for path in files_below(source):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy2(path, copy)
