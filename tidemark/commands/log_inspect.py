"""`tidemark log inspect`: what is there of a partition, what is lost and why."""

from pathlib import Path

import click

from local_log.inspection import report
from runtime.disk import Disk
from tidemark.loading import load
from tidemark.offline_logs import inspections
from tidemark.offline_options import partition_options


@click.command("inspect")
@partition_options
def command(topic: str, partition: int, config_file: Path, override: tuple[str, ...]) -> None:
    """Show what is there of a partition, what is lost and why; nothing is changed."""
    config = load(config_file, override, list_without_effect=False)
    for found in inspections(config, topic, partition, Disk()):
        for line in report(found):
            click.echo(line)
