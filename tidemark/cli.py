"""The `tidemark` command: start, format, dev, version.

Commands are imported when they are called, so that `tidemark --help` and a start are quick. What a
user did wrong ends in one message on stderr and exit code 1; nothing has been written then.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dev": "Run one broker with a local remote tier, ready in a second, nothing to set up.",
        "format": "Prepare the log directories of a node.",
        "start": "Run a node with a server.properties.",
        "version": "Print the version.",
    }
)


class _LazyGroup(click.Group):
    """A group whose commands live in `tidemark.commands.<name>` as `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(f"tidemark.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """A Kafka-compatible broker with tiered storage."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from tidemark.failures import explained  # not needed for --help

    with explained():
        cli(prog_name="tidemark")


if __name__ == "__main__":
    main()
