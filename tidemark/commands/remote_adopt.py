"""`tidemark remote adopt`: the remedy of a lost log end and of a lost epoch chain."""

from pathlib import Path

import click

from local_log.file_names import EPOCH_CHECKPOINT
from local_log.recovery.acceptance import ACCEPTED
from runtime.clock import SystemClock
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.offline_topics import OfflineLogError
from tidemark.remote.adopting import (
    Found,
    chain_by,
    chain_text,
    end_lines,
    refusals,
    segment_of,
    stopped_partition,
    take_back,
    undo_text,
    write_chain,
    write_end,
)
from tidemark.remote.adoption import adopt_end
from tidemark.remote.options import confirm, partition_options, yes_option
from tidemark.remote.storage import opened, storage_settings


@click.command("adopt")
@partition_options
@click.option(
    "--log-end", metavar="OFFSET", type=click.IntRange(min=1),
    help="Where new records begin; default: above all that is proved to have been given.",
)  # fmt: skip
@click.option(
    "--segment", metavar="ID", help="Take the epoch chain from the index of this remote segment."
)
@yes_option
@click.option(
    "--undo-file", metavar="FILE", type=click.Path(path_type=Path),
    help="Where to write what was there before; default adopted-TOPIC-PARTITION.json.",
)  # fmt: skip
@click.option(
    "--take-back", "undo", metavar="FILE", type=click.Path(path_type=Path),
    help="Put back what this undo file holds; before the next start.",
)  # fmt: skip
def command(
    topic: str,
    partition: int,
    config_file: Path,
    override: tuple[str, ...],
    log_end: int | None,
    segment: str | None,
    yes: bool,
    undo_file: Path | None,
    undo: Path | None,
) -> None:
    """Continue with a partition whose log end or epoch chain is lost. The broker must be stopped.

    Without --segment: the log ends above all offsets that were given. With it: the epoch chain is
    that of the segment's index. Nothing in the remote store is changed, no record is deleted.
    """
    if sum(one is not None for one in (log_end, segment, undo)) > 1:
        raise click.UsageError("--log-end, --segment and --take-back do not go together")
    config = load(config_file, override, list_without_effect=False)
    disk = Disk()
    path = undo_file or Path(f"adopted-{topic}-{partition}.json")
    with stopped_partition(config, topic, partition, disk) as found:
        if undo is not None:
            click.echo(f"taken back: {take_back(disk, found, undo)}")
            return
        if segment is None:
            with refusals():
                decided = adopt_end(found.log, found.history, log_end)
            for line in end_lines(found, decided):
                click.echo(line)
            confirm("Begin there?", yes=yes)
            _write_undo(disk, found, ACCEPTED, path)
            write_end(disk, found, decided)
        else:
            metadata = segment_of(found, segment)
            class_name = config.remote_log_storage_manager_class_name
            settings = storage_settings(config_file, class_name, (), None)
            with opened(settings, found.cluster_id) as storage:
                chain = chain_by(found, metadata, storage, disk)
            click.echo(f"{found.name} in {found.directory}")
            click.echo(f"  epoch chain now:  {chain_text(found.inspection.survey.chain or ())}")
            click.echo(f"  it becomes:       {chain_text(chain)}")
            confirm("Take this chain?", yes=yes)
            _write_undo(disk, found, EPOCH_CHECKPOINT, path)
            write_chain(disk, found, chain)
    click.echo(f"adopted; the next start continues with it; undo file {path}")


def _write_undo(disk: Disk, found: Found, name: str, path: Path) -> None:
    if disk.exists(path):
        raise OfflineLogError(f"{path} is there already: it may be needed; see --undo-file")
    text = undo_text(disk, found, name, SystemClock().wall_ms())
    disk.atomic_write(path, text.encode())
