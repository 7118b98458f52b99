"""`tidemark directories`: look at a node's log directories, and the remedies for lost ones."""

import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from runtime.disk import Disk
from runtime.rng import SystemRng
from tidemark.commands.directories_drain import drain_command
from tidemark.node_files.loading import load
from tidemark.node_files.log_directories import (
    accept,
    beyond_the_disk,
    directory_rows,
    forget,
    lost_by_forgetting,
)
from tidemark.node_files.lost_vote import abstain
from tidemark.remote.options import (
    config_options,
    confirm,
    json_option,
    print_json,
    yes_option,
)

_SHOWN_MAX = 20


@click.group("directories")
def command() -> None:
    """Look at a node's log directories, empty one, and say what is to become of missing ones."""


command.add_command(drain_command)


@command.command(
    "abstain", short_help="Let a controller that lost its quorum-state start without a vote."
)
@click.option(
    "--epoch", type=int, required=True, metavar="N",
    help="The highest epoch that any other controller of the quorum knows.",
)  # fmt: skip
@config_options
def abstain_command(epoch: int, config_file: Path, override: tuple[str, ...]) -> None:
    """Let a controller that lost its quorum-state start, without a vote up to epoch N.

    N is the highest epoch of all other controllers, those that are stopped included: the metric
    current-epoch of a running one, leaderEpoch in the file quorum-state of a stopped one. This
    controller must be stopped.
    """
    config = load(config_file, override, list_without_effect=False)
    abstain(config, epoch, Disk(), SystemRng())
    click.echo(f"node {config.node_id} gives no vote up to epoch {epoch}; it can be started")


@command.command("accept", short_help="Use a directory that is a copy of another time, as it is.")
@click.argument("directory", metavar="ID")
@config_options
@yes_option
def accept_command(directory: str, config_file: Path, override: tuple[str, ...], yes: bool) -> None:
    """Use log directory ID although it is a copy of another time. The broker must be stopped."""
    config = load(config_file, override, list_without_effect=False)
    if not yes:
        click.echo(
            f"Log directory {directory} does not name the last incarnation of this broker. What "
            "was "
            "written since the copy was taken is lost, and offsets that were acknowledged then "
            "will be given again."
        )
    confirm("Use it as it is?", yes=yes)
    path = accept(config, directory, Disk())
    click.echo(f"accepted: log directory {directory} ({path}); the next start uses it")


def _record_count(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> str | None:
    """Check how many records are said to be given up: a number, or unknown."""
    if value not in (None, "unknown") and not (value.isascii() and value.isdigit()):
        raise click.BadParameter(f"{value!r} is neither a number of records nor `unknown`")
    return value


@command.command("forget", short_help="Give a missing directory up.")
@click.argument("directory", metavar="ID")
@config_options
@click.option(
    "--records-given-up", callback=_record_count, metavar="N|unknown",
    help="Begin last copies again, empty: so many committed records are given up.",
)  # fmt: skip
@yes_option
def forget_command(
    directory: str,
    config_file: Path,
    override: tuple[str, ...],
    records_given_up: str | None,
    yes: bool,
) -> None:
    """Give log directory ID up: its replicas begin again, and follow others.

    A node that is a controller, too, must be stopped. One that is only a broker may run.

    ID is as `tidemark directories list` shows it; `lost` stands for replicas whose directory was
    never noted, or was forgotten before.

    A partition that has its last copy there has no leader afterwards. With --records-given-up it
    begins again, empty; say how many records are lost by that, or `unknown`.
    """
    config = load(config_file, override, list_without_effect=False)
    disk = Disk()
    lost = lost_by_forgetting(config, directory, disk)
    if lost:
        click.echo(f"The local records of {len(lost)} partitions are given up: {_some(lost)}.")
        if records_given_up is not None:
            click.echo(
                f"Those that have their last copy there begin again, empty: {records_given_up} "
                "committed records are lost."
            )
        for line in beyond_the_disk(config, lost, disk):
            click.echo(line)
        confirm("Forget this directory?", yes=yes)
    leaderless = forget(
        config, directory, disk, begins_last_copies=records_given_up is not None
    ).leaderless
    click.echo(f"forgotten: log directory {directory}, partitions={len(lost)}")
    if leaderless:
        names = _some([f"{topic}-{partition}" for topic, partition in leaderless])
        click.echo(
            f"{len(leaderless)} partitions had their last copy there and have no leader: {names}. "
            "To begin them again, empty, say how many records are given up: `tidemark directories "
            "forget lost --records-given-up N` (or `unknown`); or delete their topics."
        )


def _some(names: list[str]) -> str:
    more = "" if len(names) <= _SHOWN_MAX else f" and {len(names) - _SHOWN_MAX} more"
    return f"{', '.join(names[:_SHOWN_MAX])}{more}"


@command.command("list", short_help="Show the directories as disks and metadata know them.")
@json_option
@config_options
def list_command(config_file: Path, override: tuple[str, ...], *, as_json: bool) -> None:
    """Show the log directories of a node, running or not; nothing is changed."""
    config = load(config_file, override, list_without_effect=False)
    if as_json:
        print_json({"directories": [asdict(row) for row in directory_rows(config, Disk())]})
        return
    table = Table("directory id", "path", "replicas", "state", box=None)
    for row in directory_rows(config, Disk()):
        table.add_row(row.id or "-", row.path or "-", str(row.replicas), row.state)
    # Into a pipe nothing is cut: paths are what this is about.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)
