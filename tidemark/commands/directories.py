"""`tidemark directories`: look at a node's log directories, and the ways out for lost ones."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from runtime.dice import SystemDice
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.log_directories import (
    accept,
    beyond_the_disk,
    directory_rows,
    forget,
    lost_by_forgetting,
)
from tidemark.node_files.lost_vote import abstain
from tidemark.remote.options import config_options

_SHOWN_MAX = 20


@click.group("directories")
def command() -> None:
    """Look at a node's log directories, and say what is to become of missing ones."""


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
    abstain(config, epoch, Disk(), SystemDice())
    click.echo(f"node {config.node_id} gives no vote up to epoch {epoch}; it can be started")


@command.command("accept", short_help="Use a directory that is a copy of another time, as it is.")
@click.argument("directory", metavar="ID")
@config_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept_command(directory: str, config_file: Path, override: tuple[str, ...], yes: bool) -> None:
    """Use log directory ID although it is a copy of another time. The broker must be stopped."""
    config = load(config_file, override, list_without_effect=False)
    if not yes:
        click.echo(
            f"Log directory {directory} does not name the last life of this broker. What was "
            "written since the copy was taken is lost, and offsets that were acknowledged then "
            "will be given again."
        )
        click.confirm("Use it as it is?", abort=True)
    path = accept(config, directory, Disk())
    click.echo(f"accepted: log directory {directory} ({path}); the next start uses it")


@command.command(
    "forget", short_help="Give a missing directory up: its partitions begin anew, empty."
)
@click.argument("directory", metavar="ID")
@config_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget_command(directory: str, config_file: Path, override: tuple[str, ...], yes: bool) -> None:
    """Give log directory ID up: its partitions begin anew, empty. The broker must be stopped.

    ID is as `tidemark directories list` shows it; `lost` stands for replicas whose directory was
    never noted.
    """
    config = load(config_file, override, list_without_effect=False)
    disk = Disk()
    lost = lost_by_forgetting(config, directory, disk)
    if lost:
        more = "" if len(lost) <= _SHOWN_MAX else f" and {len(lost) - _SHOWN_MAX} more"
        click.echo(
            f"The local records of {len(lost)} partitions are given up: "
            f"{', '.join(lost[:_SHOWN_MAX])}{more}. They begin anew, empty."
        )
        for line in beyond_the_disk(config, lost, disk):
            click.echo(line)
        if not yes:
            click.confirm("Forget this directory?", abort=True)
    forget(config, directory, disk)
    click.echo(f"forgotten: log directory {directory}, partitions={len(lost)}")


@command.command("list", short_help="Show the directories as disks and metadata know them.")
@config_options
def list_command(config_file: Path, override: tuple[str, ...]) -> None:
    """Show the log directories of a node, running or not; nothing is changed."""
    config = load(config_file, override, list_without_effect=False)
    table = Table("directory id", "path", "replicas", "state", box=None)
    for row in directory_rows(config, Disk()):
        table.add_row(row.id or "-", row.path or "-", str(row.replicas), row.state)
    # Into a pipe nothing is cut: paths are what this is about.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)
