"""`tidemark cat`: a topic's records, from the remote tier and the brokers, to a file or a pipe."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from broker.config.broker_config import read_properties
from kafka_client.blocking import UnreachableError
from runtime.override import override
from tidemark.commands.pipeline_options import log_start_option, log_starts_of
from tidemark.node_files.loading import parse_overrides
from tidemark.records.options import PlaceType, count_option, partitions_option
from tidemark.records.places import AtTime, FromEnd, Place, PlaceError, Word, datetime_of
from tidemark.remote.options import (
    WrongOptionError,
    bootstrap_beside,
    bootstrap_option,
    command_config_option,
)
from tidemark.remote.progress import progress

if TYPE_CHECKING:
    from pipeline.scan import Scan
    from pipeline.scan_range import Place as ScanPlace

_FORMATS = ("jsonl", "parquet", "arrow")
_PACKAGES = ("pyarrow", "numpy")


class _ScanPlaceType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """A place that a scan knows: its store alone does not say how far the end is."""

    name = "place"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> "ScanPlace":
        try:
            return _scan_place(PlaceType().convert(value, param, ctx))
        except PlaceError as error:
            self.fail(str(error))


def _scan_place(place: Place) -> "ScanPlace":
    match place:
        case Word():
            return place.value
        case AtTime():
            return datetime_of(place)
        case FromEnd():
            raise PlaceError("a distance from the end is for `tidemark consume`")
        case _:
            return place


@click.command("cat")
@click.argument("topic")
@bootstrap_option
@click.option(
    "--bucket", metavar="URL",
    help="The store: s3://bucket/prefix, hdfs://host:port/dir, a directory. Without"
    " --bootstrap-server: what it holds; with it, only needed where the broker's settings do not"
    " fit here.",
)  # fmt: skip
@click.option(
    "--from", "start", default="earliest", type=_ScanPlaceType(), show_default=True,
    metavar="PLACE", help="First: earliest, latest, an offset, a time (2026-01-31T12:00:00Z).",
)  # fmt: skip
@click.option(
    "--to", "end", default="latest", type=_ScanPlaceType(), show_default=True,
    metavar="PLACE", help="Where to end (exclusive).",
)  # fmt: skip
@count_option
@partitions_option
@click.option("--format", "kind", type=click.Choice(_FORMATS), default="jsonl", show_default=True)
@click.option(
    "--output", "to", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True),
    help="Written under another name and renamed when complete. Default, and -: stdout.",
)  # fmt: skip
@click.option("--columns", metavar="A,B", help="key, value, topic, partition, offset, timestamp,"
              " timestampType, headers; default: all but headers.")  # fmt: skip
@click.option(
    "--isolation", type=click.Choice(("read_uncommitted", "read_committed")),
    help="Default: isolation.level of --command-config, or read_uncommitted.",
)  # fmt: skip
@click.option(
    "--storage-config", "storage", multiple=True, metavar="K=V",
    help="A setting of the storage plugin (rsm.config.K); class=... names the plugin; repeatable.",
)  # fmt: skip
@command_config_option
@click.option("--skip-lost", is_flag=True, help="Skip and count offsets that are gone.")
@click.option("--topic-id", help="Of a bucket that has several topics of this name.")
@log_start_option
def command(
    topic: str,
    bootstrap: str,
    bucket: str | None,
    start: "ScanPlace",
    end: "ScanPlace",
    count: int | None,
    partitions: tuple[int, ...],
    kind: str,
    to: str | None,
    columns: str | None,
    isolation: str | None,
    storage: tuple[str, ...],
    command_config: Path | None,
    skip_lost: bool,
    topic_id: str | None,
    log_starts: tuple[tuple[int, int], ...],
) -> None:
    """Print or save a topic's records, partition by partition, from the remote tier and brokers."""
    from pipeline.errors import MissingPackageError, need

    consume = f"`tidemark consume {topic}` prints records from the brokers alone"
    try:
        need("arrow", *_PACKAGES)
    except MissingPackageError as error:
        raise MissingPackageError(f"{error}; {consume}") from None
    from pipeline.scan import plan_scan
    from pipeline.scan_options import ScanOptions, where_of

    output = None if to in {None, "-"} else Path(str(to))
    _check_output(kind, output)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up, as Ctrl-C does
    options: ScanOptions = {
        "storage": parse_overrides(storage, option="--storage-config"),
        "client": {} if command_config is None else read_properties(command_config),
        "fail_on_data_loss": not skip_lost,
        "log_start": log_starts_of(log_starts),
    }
    if isolation:
        options["isolation"] = isolation
    if partitions:
        options["partitions"] = partitions
    if topic_id:
        options["topic_id"] = topic_id
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    where = where_of(bootstrap_beside(bucket), bucket, topic, options)
    try:
        scan = plan_scan(topic, where, (start, end), names, options)
    except UnreachableError as error:
        ways = "--bootstrap-server names another one, --bucket a store to read without brokers"
        raise UnreachableError(f"{error}; {ways}") from None
    for note in scan.plan.facts.notes:
        click.echo(f"tidemark: {note}", err=True)
    for warning in scan.plan.facts.warnings:
        click.echo(f"tidemark: warning: {warning}", err=True)
    try:
        _copy(scan, topic, kind, output, count)
    except BrokenPipeError:
        # whoever read has seen enough; nothing may be flushed at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if scan.lost.count:
        click.echo(f"tidemark: {scan.lost.count} offsets are gone and were skipped", err=True)


def _check_output(kind: str, output: Path | None) -> None:
    if output is None and kind == "parquet":
        raise WrongOptionError("--format=parquet needs --output FILE")
    if output is None and sys.stdout is None:  # started with `>&-`
        raise WrongOptionError("stdout is closed: give --output FILE")
    if output is None and kind == "arrow" and sys.stdout.isatty():
        raise WrongOptionError("--format=arrow is not for a terminal: --output FILE, or a pipe")


def _copy(scan: "Scan", topic: str, kind: str, output: Path | None, count: int | None) -> None:
    from pipeline.dump.files import first_rows, write_batches

    total = sum(
        piece.last - piece.first + 1 for split in scan.plan.splits for piece in split.pieces
    )
    total = total if count is None else min(count, total)
    with (
        _opened(output) as out,
        progress(disable=output is None and sys.stdout.isatty()) as bars,
        closing(scan.batches()) as batches,
    ):
        advance = bars.phase(f"reading {topic}")
        done = 0
        asked = batches if count is None else first_rows(batches, count)
        for rows in write_batches(kind, asked, scan.schema, out, is_file=output is not None):
            done += rows
            advance(done, max(done, total))


@contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    from pipeline.dump.files import complete_or_nothing

    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with complete_or_nothing(output) as out:
        yield out
