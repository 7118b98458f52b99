"""`tidemark pipeline export`: a topic to Parquet files or to a table, as far as it is not there."""

import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.config.broker_config import read_properties
from tidemark.commands.pipeline_options import (
    log_options,
    log_start_option,
    log_starts_of,
    progress_line,
    spark_options,
    spark_session,
)
from tidemark.node_files.loading import parse_overrides
from tidemark.remote.options import WrongOptionError, bootstrap_beside

if TYPE_CHECKING:
    from pipeline.jobs.export import Exported

_MB = 1_000_000


@click.command("export")
@click.argument("topic")
@click.option("--to", "directory", metavar="URL", help="A directory, s3:// or hdfs:// URL.")
@click.option("--iceberg", metavar="CATALOG.NAMESPACE.TABLE", help="Append by pyiceberg.")
@click.option("--delta", metavar="URL", help="Append to this Delta table.")
@click.option("--tail", is_flag=True, help="Also what only the brokers have by now.")
@click.option(
    "--value", "value", type=click.Choice(("bytes", "json")), default="bytes", show_default=True,
    help="json: decode values; one that does not parse is null and keeps its bytes in value_raw.",
)  # fmt: skip
@click.option(
    "--schema", metavar="DDL", help="Of --value json: 'id BIGINT, name STRING', or @FILE."
)
@click.option(
    "--run-bytes", type=click.IntRange(min=1), default=64 << 30, show_default=True,
    help="Stored bytes that one commit covers, about.",
)  # fmt: skip
@click.option("--skip-lost", is_flag=True, help="Continue without offsets that are gone.")
@click.option("--topic-id", help="Of a bucket that has several topics of this name.")
@log_start_option
@log_options
@spark_options
def command(topic: str, **given: Any) -> None:
    """Append to files or a table what they do not have yet of TOPIC.

    Ends at the end of the remote tier; each record is there once, however often this is run,
    killed and run again. Run one at a time: a second one ends the first.
    """
    if (given["value"] == "json") != (given["schema"] is not None):
        raise WrongOptionError("--value json and --schema go together")
    bootstrap = bootstrap_beside(given["bucket"])
    if given["tail"] and bootstrap is None:
        raise WrongOptionError("--tail needs --bootstrap-server: only brokers have the tail")
    if sum(given[name] is not None for name in ("directory", "iceberg", "delta")) != 1:
        raise WrongOptionError("say where to export to: one of --to, --iceberg and --delta")
    from pipeline.errors import need

    need("spark", "pyspark", "pyarrow", "numpy")
    from pipeline.scan_options import where_of

    where = where_of(bootstrap, given["bucket"], topic, _scan_options(given))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up, as Ctrl-C does
    with spark_session(f"tidemark export {topic}", given["master"], given["conf"]) as spark:
        from pipeline.jobs.export import ExportOptions, Target, export, open_target
        from pipeline.jobs.json_schema import value_type_of

        kind = None if given["schema"] is None else value_type_of(_text(given["schema"]))
        options = ExportOptions(topic, where, given["tail"], kind, given["run_bytes"])
        target = Target(given["directory"], given["iceberg"], given["delta"])
        with closing(open_target(target, topic, kind)) as ledger, progress_line() as say:
            done = export(spark, options, ledger, say)
    _report(topic, done)


def _scan_options(given: dict[str, Any]) -> Any:
    config: Path | None = given["command_config"]
    options = {
        "storage": parse_overrides(given["storage"], option="--storage-config"),
        "client": {} if config is None else read_properties(config),
        "fail_on_data_loss": not given["skip_lost"],
        "log_start": log_starts_of(given["log_starts"]),
    }
    for name in ("isolation", "topic_id"):
        if given[name]:
            options[name] = given[name]
    return options


def _text(schema: str) -> str:
    return Path(schema[1:]).read_text() if schema.startswith("@") else schema


def _report(topic: str, done: "Exported") -> None:
    for note in done.notes:
        click.echo(f"tidemark: {note}", err=True)
    if done.unparsed:
        click.echo(f"tidemark: {done.unparsed} values did not parse, see value_raw", err=True)
    if done.lost:
        click.echo(f"tidemark: {done.lost} offsets are gone and were skipped", err=True)
    if done.runs == 0:
        click.echo(f"{topic}: nothing new")
        return
    click.echo(done_text(topic, done))


def done_text(topic: str, done: "Exported") -> str:
    """The last line: what was written, and from how much of the log it was made."""
    files = "1 file" if done.files == 1 else f"{done.files} files"
    commits = "1 commit" if done.runs == 1 else f"{done.runs} commits"
    return (
        f"{topic}: {done.rows} records, {done.read_bytes / _MB:.1f} MB of the log, are"
        f" {done.size_bytes / _MB:.1f} MB in {files}; {commits}"
    )
