"""The `tidemark` command: a node (start, format, dev), its tools, and the data in its topics.

Commands are imported when they are called, so that `tidemark --help` and a start are quick. What a
user did wrong ends in one message on stderr and exit code 1; nothing has been written then.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from tidemark.lazy_group import LazyGroup

_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cat": "Print or save a topic's records, from the remote tier and the brokers.",
        "dev": "Run one broker with a local remote tier, ready in a second, nothing to set up.",
        "directories": "Look at a node's log directories; give a lost one up.",
        "format": "Prepare the log directories of a node.",
        "log": "Look at the files of one partition: inspect, accept.",
        "metadata-quorum": "Describe the quorum of the controllers: who leads, how far all are.",
        "pipeline": "Run jobs on Spark that read topics from the remote tier: export, verify.",
        "remote": "Look at the remote tier of a cluster: segments, audit; claim, forget.",
        "rsm": "For authors and operators of storage plugins: check.",
        "start": "Run a node with a server.properties.",
        "version": "Print the version.",
    }
)


@click.command(
    cls=LazyGroup,
    module="tidemark.commands.{}",
    names=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def cli() -> None:
    """A Kafka-compatible broker with tiered storage."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from tidemark.failures import explained  # not needed for --help

    with explained():
        cli(prog_name="tidemark")


if __name__ == "__main__":
    main()
