"""`tidemark init`: write a server.properties to begin with."""

from pathlib import Path

import click

from kafka_protocol.wire.primitives import uuid_to_text
from rsm_plugins.settings import PREFIX
from runtime.disk import Disk
from runtime.rng import SystemRng
from tidemark.dev.ports import typed
from tidemark.dev.settings import HOST, PORT_MAX
from tidemark.node_files.initial_properties import NODES, Store, places, server_properties
from tidemark.node_files.loading import parse_overrides


def _store(_: click.Context, __: click.Parameter, text: str) -> Store | None:
    try:
        return Store.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("init")
@click.option(
    "--nodes", type=click.Choice(["1", str(NODES)]), default="1", show_default=True,
    help="A lone node, or three, each broker and controller, a file for each.",
)  # fmt: skip
@click.option(
    "--hosts", metavar="H1,H2,H3", help="Of the nodes; without it all of them are on this machine."
)
@click.option(
    "--port", default=9092, show_default=True, type=click.IntRange(1, PORT_MAX - 200),
    help="For clients; the controller takes the next one.",
)  # fmt: skip
@click.option(
    "--data", default="./tidemark-data", show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for all that a node writes.",
)  # fmt: skip
@click.option(
    "--store", metavar="PLACE", default="none", show_default=True, callback=_store,
    help="Remote tier: a directory, s3://BUCKET/PREFIX, hdfs://HOST:PORT/DIR or "
    "PACKAGE.MODULE:CLASS of a storage plugin.",
)  # fmt: skip
@click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE",
    help="A setting of the store, as KEY after rsm.config.; repeatable.",
)  # fmt: skip
@click.argument("file", default="server.properties", type=click.Path(path_type=Path))
def command(
    *,
    nodes: str,
    hosts: str | None,
    port: int,
    data: Path,
    store: Store | None,
    given: tuple[str, ...],
    file: Path,
) -> None:
    """Write a server.properties with comments, and say how to continue; nothing is started.

    FILE is its name; those of three nodes are FILE with -1, -2 and -3.
    """
    count = int(nodes)
    names = [HOST] * count if hosts is None else [one.strip() for one in hosts.split(",")]
    if len(names) != count or not all(names):
        raise click.UsageError(f"--hosts={hosts}: there must be {count}, one for each node")
    if given and store is None:
        raise click.UsageError("--set is for the settings of a --store, and there is none")
    if store is not None:
        settings = parse_overrides(given, option="--set")
        store = store.having({key.removeprefix(PREFIX): one for key, one in settings.items()})
    where = places(data.absolute(), port, names)
    files = [file] if count == 1 else [_numbered(file, one.node_id) for one in where]
    disk = Disk()
    if there := [str(one) for one in files if disk.exists(one)]:
        raise click.UsageError(f"{', '.join(there)} is there already: name another FILE")
    disk.make_dirs(file.parent)
    for path, me in zip(files, where, strict=True):
        disk.atomic_write(path, server_properties(me, where, store).encode())
        click.echo(f"wrote {path}")
    click.echo("\nNow:")
    for line in _next(files, has_secret=store is not None and count > 1):
        click.echo(f"  {line}")


def _numbered(file: Path, node_id: int) -> Path:
    return file.with_name(f"{file.stem}-{node_id}{file.suffix}")


def _next(files: list[Path], *, has_secret: bool) -> list[str]:
    """Commands to type, in their order."""
    if len(files) == 1:
        config = ("--config", str(files[0]))
        return [typed(["format", *config, "--standalone"]), typed(["start", *config])]
    cluster = ("--cluster-id", uuid_to_text(SystemRng().uuid()))
    first = ["--cluster-secret"] if has_secret else []
    formats = [
        typed(["format", "--config", str(one), *cluster, *(first if one is files[0] else ())])
        for one in files
    ]
    return [*formats, *(typed(["start", "--config", str(one)]) for one in files)]
