"""`tidemark directories accept`: use a directory of another time as it is."""

from pathlib import Path

import click

from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.log_directories import accept
from tidemark.node_files.offline_options import config_options


@click.command("accept")
@click.argument("directory", metavar="ID")
@config_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(directory: str, config_file: Path, override: tuple[str, ...], yes: bool) -> None:
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
