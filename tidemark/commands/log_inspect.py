"""`tidemark log inspect`: what is there of a partition, what is lost and why."""

from pathlib import Path

import click

from local_log.recovery.inspection import report
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.offline_logs import inspections
from tidemark.node_files.offline_options import partition_options
from tidemark.node_files.offline_placement import placement_problem
from tidemark.node_files.offline_topics import OfflineLogError, refused_snapshots


@click.command("inspect")
@partition_options
def command(topic: str, partition: int, config_file: Path, override: tuple[str, ...]) -> None:
    """Show what is there of a partition, what is lost and why; nothing is changed."""
    config, disk = load(config_file, override, list_without_effect=False), Disk()
    for line in refused_snapshots(config, disk):
        click.echo(line)
    problem = placement_problem(config, topic, partition, disk)
    if problem:
        click.echo(f"{topic}-{partition} is offline: {problem}")
    try:
        found = inspections(config, topic, partition, disk)
    except OfflineLogError:
        if not problem:
            raise
        return  # its files are in no directory, which was said
    for one in found:
        for line in report(one):
            click.echo(line)
