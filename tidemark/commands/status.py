"""`tidemark status`: is a cluster well, node by node."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from runtime.clock import SystemClock
from runtime.disk import Disk
from tidemark import __version__
from tidemark.cluster.table import plain
from tidemark.dev.settings import LOG
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import (
    ToolCommand,
    bootstrap_beside,
    bootstrap_option,
    command_config_option,
    json_option,
    print_json,
    terminal_width,
)
from tidemark.status.asking import StatusAsker
from tidemark.status.report import GREEN, validate

NOT_REACHED: Final = 2
"""Exit code: no node answers."""
_FILES_MAX: Final = 4
_LINES: Final = 5
_TAIL_BYTES: Final = 4_096
_LOOPBACK: Final = ("127.", "localhost:", "[::1]:", "::1:")


@click.command("status", cls=ToolCommand)
@bootstrap_option
@click.option(
    "--bootstrap-controller", metavar="HOST:PORT",
    help="A controller; several with commas between. They are asked themselves then, also where no"
    " broker runs; brokers only where --bootstrap-server is given, too.",
)  # fmt: skip
@command_config_option
@click.option(
    "--data", default="./data", show_default=True, type=click.Path(path_type=Path, file_okay=False),
    help="Of `tidemark dev`: its logs are shown where no node of this machine answers.",
)  # fmt: skip
@json_option
def command(
    bootstrap: str,
    bootstrap_controller: str | None,
    command_config: Path | None,
    data: Path,
    *,
    as_json: bool,
) -> None:
    """Show all nodes of a cluster, its topics, and how far the remote tier is.

    Exit code 0: all is green. 1: it is not; with the reasons, and the remedies. 2: no node answers;
    then with the last lines of the logs that `tidemark dev` keeps in --data.
    """
    settings = client_settings(command_config)
    if settings.without_effect:
        click.echo(f"tidemark: no effect here: {', '.join(settings.without_effect)}", err=True)
    servers = bootstrap_beside(bootstrap_controller)
    asker = StatusAsker(servers, bootstrap_controller, settings, SystemClock())
    report = validate(asker.ask())
    if as_json:
        print_json({"version": __version__, **report.as_json()})
    else:
        click.echo(f"tidemark {__version__}")
        click.echo(report.text(terminal_width()), nl=False)
    if report.facts.is_reached:
        sys.exit(0 if report.status == GREEN else 1)
    given = ",".join(one for one in (servers, bootstrap_controller) if one is not None)
    if not as_json and is_here(given):
        for line in last_lines(data, Disk()):
            click.echo(line)
    sys.exit(NOT_REACHED)


def is_here(addresses: str) -> bool:
    """Whether one of the addresses (with commas between) is this machine's, by loopback."""
    return any(one.strip().startswith(_LOOPBACK) for one in addresses.split(","))


def last_lines(data: Path, disk: Disk) -> Iterator[str]:
    """Name each log with its last lines, the one that was written last first; none: nothing.

    Args:
        data: the directory of `tidemark dev`: logs lie in it, or in directories of its nodes.
        disk: reads.
    """
    if not disk.is_dir(data):
        return
    places = [data, *sorted(data / name for name in disk.list_dir(data))]
    found = [one / LOG for one in places if disk.is_dir(one) and disk.exists(one / LOG)]
    found.sort(key=lambda path: (-disk.modified_ms(path), path))
    for path in found[:_FILES_MAX]:
        file = disk.open_read(path)
        size = disk.size(path)
        first = max(0, size - _TAIL_BYTES)
        text = disk.read_at(file, first, size - first).decode(errors="replace")
        file.close()
        yield f"\n{path}:"
        yield from (f"  {plain(line)}" for line in text.splitlines()[-_LINES:])
