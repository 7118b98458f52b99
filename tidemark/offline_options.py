"""Arguments and options of the commands that look at one partition's files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])  # Any: click gives what the options say


def offline_options(command: Command) -> Command:
    """Add TOPIC, PARTITION, --config and --override."""
    for add in (
        click.option(
            "--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable."
        ),
        click.option(
            "--config",
            "-c",
            "config_file",
            required=True,
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="The node's server.properties.",
        ),
        click.argument("partition", type=click.IntRange(min=0)),
        click.argument("topic"),
    ):
        command = add(command)
    return command
