"""Arguments and options of the commands that look at a node's files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])  # Any: click gives what the options say


def config_options(command: Command) -> Command:
    """Add --config and --override."""
    command = click.option(
        "--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable."
    )(command)
    return click.option(
        "--config",
        "-c",
        "config_file",
        required=True,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The node's server.properties.",
    )(command)


def partition_options(command: Command) -> Command:
    """Add TOPIC, PARTITION, --config and --override."""
    command = click.argument("partition", type=click.IntRange(min=0))(config_options(command))
    return click.argument("topic")(command)
