"""Arguments and options that commands share, and their exit code for wrong ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])  # Any: click gives what the options say

F = TypeVar("F", bound=Callable[..., Any])


class WrongOptionError(click.UsageError):
    """Options that do not go together, or one that does not exist."""

    exit_code = 1


class ToolCommand(click.Command):
    """A command whose wrong options end with 1, for 2 means something else here."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See click."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise WrongOptionError(error.format_message(), error.ctx) from error


def cluster_options(function: F) -> F:
    """`--bootstrap-server` and `--command-config`, as Kafka's tools have them."""
    server = click.option(
        "--bootstrap-server", "bootstrap", default="localhost:9092", show_default=True,
        metavar="HOST:PORT", help="A broker of the cluster; several with commas between.",
    )  # fmt: skip
    config = click.option(
        "--command-config", metavar="FILE", type=click.Path(path_type=Path),
        help="Properties of the Kafka client.",
    )  # fmt: skip
    return server(config(function))


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
