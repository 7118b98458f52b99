"""`tidemark remote claim`: let a broker write to its store again."""

from pathlib import Path

import click

from runtime.clock import SystemClock
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.remote.claim import compare, locked, take
from tidemark.remote.options import config_options, confirm, yes_option
from tidemark.remote.storage import opened, storage_settings

_WARNING = """\
With this the files of this broker are the ones to continue with. Its next start copies and deletes
again as they say. What a later state of them has copied and they do not know stays in the store:
`tidemark remote audit` finds it. What that state has deleted and they still know cannot be read.
Another machine that runs as this broker must never start again."""

_WARNING_MISSING = """\
With this the store is taken for a new one: the next start writes a claim there and copies again.
What was copied before is not copied again, and cannot be read where it is gone: see `tidemark
remote audit`. If the former store still exists, do not continue: mount it, or correct the
settings."""


@click.command("claim")
@config_options
@yes_option
def command(config_file: Path, override: tuple[str, ...], yes: bool) -> None:
    """Take the claim on the store for these files. The broker must be stopped.

    A broker whose log directories are older than what the store has seen of it, or that has a
    clone, copies and deletes nothing. Nor does one whose store no longer holds its claim. Mount
    that store, or where it was emptied or replaced, use this command. Nothing in the store is
    changed but a damaged claim, which is replaced. The counter of before is kept in a file beside.
    """
    config = load(config_file, override, list_without_effect=False)
    found = storage_settings(config_file, config.remote_log_storage_manager_class_name, (), None)
    disk = Disk()
    with locked(config, disk) as cluster_id, opened(found, cluster_id) as storage:
        compared = compare(config, cluster_id, storage, disk, SystemClock().wall_ms())
        for line in compared.lines():
            click.echo(line)
        if not compared.reason:
            click.echo("there is nothing to do: the next start takes the claim")
            return
        click.echo(compared.reason)
        click.echo(_WARNING_MISSING if compared.is_missing else _WARNING)
        confirm(f"Set the counter to {compared.wanted.number}?", yes=yes)
        kept = take(config, compared, storage, disk)
    click.echo(f"the counter is {compared.wanted.number}; start the broker to take the claim")
    if kept is not None:
        click.echo(f"to undo it before that: mv {kept} {kept.with_suffix('')}")
