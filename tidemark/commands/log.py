"""`tidemark log`: look at the files of one partition, and take a log as it is."""

from pathlib import Path

import click

from local_log.recovery import inspection
from local_log.recovery.inspection import accept, report
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.offline_topics import (
    OfflineLogError,
    inspections,
    placement_problem,
    refused_snapshots,
)
from tidemark.remote.options import confirm, json_option, partition_options, print_json, yes_option


@click.group("log")
def command() -> None:
    """Look at the files of one partition; both work beside a running broker."""


@command.command("accept", short_help="Take a partition that a start has refused as it is.")
@partition_options
@yes_option
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
    confirm("take the log as it is?", yes=yes)
    accept(disk, found[0])
    click.echo("accepted; restart the broker to open the log")


@command.command("inspect", short_help="Show what is there of a partition, what is lost and why.")
@json_option
@partition_options
def inspect_command(
    topic: str, partition: int, config_file: Path, override: tuple[str, ...], *, as_json: bool
) -> None:
    """Show what is there of a partition, what is lost and why; nothing is changed."""
    config, disk = load(config_file, override, list_without_effect=False), Disk()
    notes = [*refused_snapshots(config, disk)]
    problem = placement_problem(config, topic, partition, disk)
    if problem:
        notes.append(f"{topic}-{partition} is offline: {problem}")
    try:
        found = inspections(config, topic, partition, disk)
    except OfflineLogError:
        if not problem:
            raise
        found = []  # its files are in no directory, which is said
    if as_json:
        print_json({"notes": notes, "logs": [inspection.as_json(one) for one in found]})
        return
    for line in notes:
        click.echo(line)
    for one in found:
        for line in report(one):
            click.echo(line)
