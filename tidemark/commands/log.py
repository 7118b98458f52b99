"""`tidemark log`: look at the files of one partition, and take a log as it is."""

from types import MappingProxyType

import click

from tidemark.lazy_group import LazyGroup

_COMMANDS = MappingProxyType(
    {
        "accept": "Take a partition that a start has refused as it is.",
        "inspect": "Show what is there of a partition, what is lost and why.",
    }
)


@click.command("log", cls=LazyGroup, module="tidemark.commands.log_{}", names=_COMMANDS)
def command() -> None:
    """Look at the files of one partition; both work beside a running broker."""
