"""`tidemark directories list`: the log directories of a node."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.log_directories import directory_rows
from tidemark.node_files.offline_options import config_options


@click.command("list")
@config_options
def command(config_file: Path, override: tuple[str, ...]) -> None:
    """Show the log directories of a node, running or not; nothing is changed."""
    config = load(config_file, override, list_without_effect=False)
    table = Table("directory id", "path", "replicas", "state", box=None)
    for row in directory_rows(config, Disk()):
        table.add_row(row.id or "-", row.path or "-", str(row.replicas), row.state)
    # Into a pipe nothing is cut: paths are what this is about.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)
