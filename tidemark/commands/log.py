"""`tidemark log`: look at the files of one partition, and take a log as it is."""

from pathlib import Path

import click

from local_log.recovery.inspection import accept, report
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.offline_topics import (
    OfflineLogError,
    inspections,
    placement_problem,
    refused_snapshots,
)
from tidemark.remote.options import partition_options


@click.group("log")
def command() -> None:
    """Look at the files of one partition; both work beside a running broker."""


@command.command("accept", short_help="Take a partition that a start has refused as it is.")
@partition_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept_command(
    topic: str, partition: int, config_file: Path, override: tuple[str, ...], yes: bool
) -> None:
    """Take a partition as it is; the next start that finds it so opens it.

    Nothing but `tidemark-accepted` is written, so the broker may run. What the start cuts it keeps.
    """
    config = load(config_file, override, list_without_effect=False)
    disk = Disk()
    problem = placement_problem(config, topic, partition, disk)
    if problem:
        raise OfflineLogError(f"{topic}-{partition} is offline for another reason: {problem}")
    found = inspections(config, topic, partition, disk)
    if len(found) > 1:
        places = ", ".join(str(one.request.directory) for one in found)
        raise OfflineLogError(
            f"{topic}-{partition} is in several log directories: {places}; move all but one away"
        )
    for line in report(found[0]):
        click.echo(line)
    if not found[0].is_refused:
        click.echo("there is nothing to accept")
        return
    if not yes:
        click.confirm("take the log as it is?", abort=True)
    accept(disk, found[0])
    click.echo("accepted; restart the broker to open the log")


@command.command("inspect", short_help="Show what is there of a partition, what is lost and why.")
@partition_options
def inspect_command(
    topic: str, partition: int, config_file: Path, override: tuple[str, ...]
) -> None:
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
