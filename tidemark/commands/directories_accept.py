"""`tidemark directories accept`: use a directory of another time as it is."""

from pathlib import Path

import click

from runtime.disk import Disk
from tidemark.loading import load
from tidemark.log_directories import accept


@click.command("accept")
@click.argument("directory", metavar="ID")
@click.option(
    "--config", "-c", "config_file", required=True, metavar="FILE", type=click.Path(path_type=Path),
    help="The node's server.properties.",
)  # fmt: skip
@click.option("--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable.")
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
