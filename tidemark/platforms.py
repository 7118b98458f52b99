"""On which system something of Tidemark runs, said before anything fails for want of it.

Imports nothing: a test suite's process does, and the command line before it loads a command.
"""

import sys
from typing import Final

NAMES: Final = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}
_ANYWHERE: Final = "version"
_OF_NODES: Final = frozenset({"dev", "directories", "format", "log", "split", "start"})
"""Commands that run a node, or touch its files."""


def why_no_command(name: str, platform: str | None = None) -> str | None:
    """Why a command cannot run on this system, and where it can; None where nothing is known.

    Args:
        name: of the command.
        platform: as `sys.platform` names it; None: this one. On Windows nothing runs that
            loads Tidemark's files and sockets; elsewhere only nodes need Linux.
    """
    is_windows = NAMES.get(platform or sys.platform) == "Windows"
    if name == _ANYWHERE or not (name in _OF_NODES or is_windows):
        return None
    return why_not_here(f"`tidemark {name}`", platform)


def why_not_here(what: str, platform: str | None = None) -> str | None:
    """Why something that needs Linux cannot run on this system; None on Linux."""
    here = platform or sys.platform
    if here == "linux":
        return None
    name = NAMES.get(here, here)
    where = "WSL 2, a Linux container" if name == "Windows" else "a Linux container"
    return (
        f"{what} runs on Linux only, and this is {name}: run it in {where} (`docker compose up`)"
        " or a virtual machine; Kafka clients of any system reach it there"
    )
