"""A group of commands of which each is imported only when it is called."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """Knows its commands by name; a command is the `command` of a module of its own."""

    def __init__(self, *args: Any, module: str, names: Mapping[str, str], **kwargs: Any) -> None:
        """Take the list of commands.

        Args:
            args: as click's.
            module: where a command lives, `{}` for its name with underscores.
            names: one line of help for each command.
            kwargs: as click's.
        """
        super().__init__(*args, **kwargs)
        self._module, self._names = module, names

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click."""
        return sorted(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click."""
        if cmd_name not in self._names:
            return None
        module = self._module.format(cmd_name.replace("-", "_"))
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click: without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._names.items()))
