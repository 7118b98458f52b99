"""WARNING lines of the nodes of a test suite since a place in their logs."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

LINES_MAX: Final = 40
"""Of one log: the last ones."""
_BYTES_MAX: Final = 1 << 20
_LINE: Final = re.compile(r'^[\[{"a-z: ]*\d{4}-\d\d-\d\d')
"""How a line of a log begins; others belong to the one before, as those of a stack do."""
_LEVEL: Final = re.compile(r"^.{0,80}?\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_QUIET: Final = ("DEBUG", "INFO")


def log_sizes(logs: Mapping[int, Path]) -> dict[Path, int]:
    """Bytes of each log that there is, to ask for what comes after them."""
    return {path: path.stat().st_size for path in logs.values() if path.exists()}


def warnings_since(logs: Mapping[int, Path], sizes: Mapping[Path, int]) -> str:
    """Lines of level WARNING and above that nodes have written since then; "" where there are none.

    Args:
        logs: by the ids of nodes.
        sizes: of logs, then; of one that is not among them all is new.
    """
    parts = []
    for node_id, path in logs.items():
        lines = list(_warnings(_text(path, sizes.get(path, 0))))
        if lines:
            more = len(lines) - LINES_MAX
            cut = [f"({more} more lines before these)"] if more > 0 else []
            parts += [f"node {node_id}, {path}:", *cut, *lines[-LINES_MAX:]]
    return "\n".join(parts)


def _text(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(min(start, end), end - _BYTES_MAX))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _warnings(text: str) -> Iterator[str]:
    is_one = False
    for line in text.splitlines():
        if _LINE.match(line):
            level = _LEVEL.match(line)
            is_one = level is not None and level[1] not in _QUIET
        if is_one:
            yield line
