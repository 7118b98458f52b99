"""`tidemark rsm`: for authors and operators of storage plugins."""

from types import MappingProxyType

import click

from tidemark.cli import LazyGroup

_COMMANDS = MappingProxyType(
    {
        "check": "Ask a storage plugin every promise, on a live store, and measure its speed.",
        "new": "Begin a storage plugin: its code, its test and its settings, which pass.",
    }
)


@click.command("rsm", cls=LazyGroup, module="tidemark.commands.rsm_{}", names=_COMMANDS)
def command() -> None:
    """For authors and operators of storage plugins."""
