"""`tidemark remote forget`: give up the remote data of an unknown topic id."""

from pathlib import Path

import click

from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.controller.topic_deletion import RemoteDataWish
from runtime.disk import Disk
from tidemark.remote.forget import (
    ForgetRefusedError,
    RemoteData,
    ask,
    check_absent,
    find,
    parse_topic_id,
    undo_text,
)
from tidemark.remote.options import cluster_options, confirm, yes_option
from tidemark.remote.progress import progress
from tidemark.remote.segments_view import count_text, size_text
from tidemark.remote.session import Session, connected


@click.command("forget")
@click.argument("topic_id", metavar="TOPIC_ID")
@yes_option
@click.option(
    "--undo-file", metavar="FILE", type=click.Path(path_type=Path),
    help="Where to write what was changed; default forgotten-TOPIC_ID.json.",
)  # fmt: skip
@click.option("--take-back", is_flag=True, help="Keep what is left of a forgotten id after all.")
@cluster_options
def command(
    topic_id: str,
    yes: bool,
    undo_file: Path | None,
    take_back: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Give up the remote data of TOPIC_ID, which the cluster metadata do not know.

    The broker runs meanwhile. It deletes the data as that of a deleted topic, after
    tidemark.remote.delete.grace.ms. The id of a topic that exists is refused.
    """
    wanted = parse_topic_id(topic_id)
    with connected(bootstrap, command_config) as session:
        check_absent(session.cluster, wanted)
        found = _read(session, wanted)
        if take_back:
            ask(session.client, session.cluster.brokers, wanted, RemoteDataWish.KEEP)
            click.echo(f"kept, as far as it is still there: {_text(found)}")
            return
        click.echo(f"To be deleted from the remote store: {_text(found)}.")
        click.echo("With the plugins of Tidemark each segment is three objects.")
        confirm("Forget this topic id?", yes=yes)
        path = undo_file or Path(f"forgotten-{uuid_to_text(wanted)}.json")
        _write_undo(session, found, path)
        ask(session.client, session.cluster.brokers, wanted, RemoteDataWish.FORGET)
    click.echo(f"forgotten: topic id {uuid_to_text(wanted)}; undo file {path}")


def _read(session: Session, wanted: bytes) -> RemoteData:
    with progress() as bars, session.metadata() as metadata:
        metadata.read_to_end(bars.phase("reading metadata"))
        if not metadata.is_whole:
            click.echo("Some records of the metadata topic are missing: there may be more.")
        return find(metadata, wanted)


def _text(found: RemoteData) -> str:
    return (
        f"topic {found.topic}, id {uuid_to_text(found.topic_id)}: "
        f"{count_text(len(found.partitions), 'partition')}, "
        f"{count_text(len(found.segments), 'segment')}, {size_text(found.size_bytes)}"
    )


def _write_undo(session: Session, found: RemoteData, path: Path) -> None:
    disk = Disk()
    if disk.exists(path):
        raise ForgetRefusedError(f"{path} is there already: it may be needed; see --undo-file")
    text = undo_text(found, cluster_id=session.cluster.cluster_id, now_ms=session.clock.wall_ms())
    disk.atomic_write(path, text.encode())
