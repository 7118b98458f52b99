"""`tidemark directories forget`: give a lost directory up."""

from pathlib import Path

import click

from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.log_directories import beyond_the_disk, forget, lost_by_forgetting
from tidemark.node_files.offline_options import config_options

_SHOWN_MAX = 20


@click.command("forget")
@click.argument("directory", metavar="ID")
@config_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(directory: str, config_file: Path, override: tuple[str, ...], yes: bool) -> None:
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
