"""Listings of fsspec file systems in one form: in the order of keys, with times in milliseconds.

Must not know: roots, keys, segments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rsm_plugins.fsspec.errors import Meaning, meaning_of


def files_below(
    list_folder: Callable[[str], Sequence[Mapping[str, Any]]], folder: str, excluded_suffix: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Paths and facts of all files below a directory, in order; none if it does not exist.

    One directory is held in memory at a time.

    Args:
        list_folder: Returns the file system's facts about each child of a directory.
        folder: Where to begin.
        excluded_suffix: Directories whose names end with it are not entered.
    """
    try:
        infos = list_folder(folder)
    except Exception as e:
        if meaning_of(e) is Meaning.NOT_FOUND:
            return
        raise
    # A folder sorts as its children's keys do: with a slash at its end.
    entries = {
        _last(info["name"]) + "/" * (info["type"] == "directory"): info
        for info in infos
        if info["name"].strip("/") != folder.strip("/")  # some list the folder itself, too
    }
    for name, info in sorted(entries.items()):
        path = f"{folder}/{name}"
        if name.endswith(excluded_suffix + "/"):
            continue
        if name.endswith("/"):
            yield from files_below(list_folder, path[:-1], excluded_suffix)
        else:
            yield path, info


def modified_ms(info: Mapping[str, Any]) -> int:
    """Time of a file's last write, in ms since 1970, from any file system's facts; 0 if unknown."""
    names = ("mtime", "LastModified", "last_modified", "modification_time", "modificationTime")
    for name in (*names, "updated", "created"):
        value = info.get(name)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return int(aware.timestamp() * 1_000)
        if isinstance(value, (int, float)):
            # HDFS returns milliseconds, a disk seconds.
            return int(value if "odification" in name else value * 1_000)
    return 0


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
