"""`tidemark directories`: look at a node's log directories, and the ways out for lost ones."""

from types import MappingProxyType

import click

from tidemark.lazy_group import LazyGroup

_COMMANDS = MappingProxyType(
    {
        "abstain": "Let a controller that lost its quorum-state start without a vote.",
        "accept": "Use a directory that is a copy of another time, as it is.",
        "forget": "Give a missing directory up: its partitions begin anew, empty.",
        "list": "Show the directories as disks and metadata know them.",
    }
)


@click.command(
    "directories", cls=LazyGroup, module="tidemark.commands.directories_{}", names=_COMMANDS
)
def command() -> None:
    """Look at a node's log directories, and say what is to become of missing ones."""
