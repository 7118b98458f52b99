"""`tidemark pipeline`: jobs on Spark that read topics from the remote tier."""

from types import MappingProxyType

import click

from tidemark.cli import LazyGroup

_COMMANDS = MappingProxyType(
    {
        "export": "Append a topic to Parquet files, an Iceberg table, or a Delta table.",
        "verify": "Compare what Spark reads of a topic with what a consumer gets.",
    }
)


@click.command("pipeline", cls=LazyGroup, module="tidemark.commands.pipeline_{}", names=_COMMANDS)
def command() -> None:
    """Run jobs on Spark that read topics from the remote tier; each may be killed and run again."""
