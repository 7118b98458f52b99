"""Writes down what a broker's process takes from `.log` files: deleted, cut off, or put aside."""

import json
import os
import time
from pathlib import Path
from typing import Any

from kafka_protocol.records.batch import read_header
from runtime.disk import OpenFile


class LogRecorder:
    """Sees each operation of a disk before it is done; one line for each `.log` that it takes."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def see(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Look at one call of a method of `Disk`."""
        first = arguments[0]
        path = Path(first.path if isinstance(first, OpenFile) else first)
        if path.parent.name.endswith("-delete"):
            return  # noted when the directory took this name
        match name:
            case "rename":
                self._rename(path, arguments[1])
            case "unlink" | "open_empty":
                if ".log" in path.name and not path.name.endswith(".deleted"):
                    self._note("deleted", path)
            case "remove_tree":
                if not path.name.endswith("-delete"):
                    self._note_all(path)
            case "truncate":
                if path.name.endswith(".log"):
                    self._note("cut", path, arguments[1])

    def _rename(self, source: Path, target: Path) -> None:
        if source.name.endswith(".log"):
            self._note("deleted" if target.name.endswith(".deleted") else "aside", source)
        elif target.name.endswith("-delete"):
            self._note_all(source)

    def _note_all(self, directory: Path) -> None:
        for path in sorted(directory.glob("*.log")):
            self._note("deleted", path)

    def _note(self, what: str, path: Path, position: int = 0) -> None:
        """Of the whole batches from `position` on; nothing where there are none."""
        batches = batches_of(path, position)
        if not batches:
            return
        line = {
            "what": what,
            "partition": path.parent.name,
            "file": path.name,
            "first": batches[0][0],
            "last": batches[-1][1],
            "ms": time.time_ns() // 1_000_000,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


def batches_of(path: Path, position: int = 0) -> list[tuple[int, int]]:
    """First and last offset of each whole batch of a segment."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    found = []
    while position + 61 <= len(data):
        header = read_header(data, position)
        if header.size_bytes < 61 or position + header.size_bytes > len(data):
            break
        found.append((header.base_offset, header.last_offset))
        position += header.size_bytes
    return found
