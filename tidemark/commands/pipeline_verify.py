"""`tidemark pipeline verify`: does Spark read what a consumer gets?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.config.broker_config import read_properties
from tidemark.commands.pipeline_options import (
    log_options,
    progress_line,
    spark_options,
    spark_session,
)
from tidemark.node_files.loading import parse_overrides
from tidemark.remote.options import ToolCommand, WrongOptionError

if TYPE_CHECKING:
    from pipeline.jobs.verify import Compared

EQUAL, DIFFERENT = 0, 1


@click.command("verify", cls=ToolCommand)
@click.argument("topic")
@log_options
@spark_options
def command(topic: str, **given: Any) -> None:
    """Read TOPIC by the source and by a consumer within the same offsets; compare.

    Exit code 0: the same records, by count and hash of each partition. 1: some differ, or it could
    not be done.
    """
    config: Path | None = given["command_config"]
    client = {} if config is None else read_properties(config)
    isolation = client.get("isolation.level", given["isolation"] or "read_uncommitted")
    if given["isolation"] not in (None, isolation):
        raise WrongOptionError(f"--isolation contradicts isolation.level={isolation} of the client")
    client |= {"bootstrap.servers": given["bootstrap"], "isolation.level": isolation}
    storage = parse_overrides(given["storage"], option="--storage-config")
    source = {f"rsm.config.{name}": value for name, value in storage.items()}
    if given["bucket"] is not None:
        source["tidemark.bucket"] = given["bucket"]
    from pipeline.errors import need

    need("spark", "pyspark", "pyarrow", "numpy")
    from pipeline.jobs.consume_task import bounds
    from pipeline.jobs.verify import VerifyOptions, verify
    from pipeline.scan_options import where_of

    where_of(
        given["bootstrap"], given["bucket"], topic, {"storage": storage}
    )  # raises what is wrong
    session = spark_session(f"tidemark verify {topic}", given["master"], given["conf"])
    options = VerifyOptions(topic, client, source, bounds(topic, client))  # before Spark, 10 s
    with session as spark, progress_line() as say:
        found = verify(spark, options, say)
    sys.exit(_report(topic, found))


def _report(topic: str, found: "list[Compared]") -> int:
    for one in found:
        where = f"{topic}-{one.partition} offsets {one.range.start} to {one.range.end - 1}"
        if one.is_equal:
            click.echo(f"{where}: {one.source.count} records, equal")
        else:
            click.echo(
                f"{where}: DIFFERENT:"
                f" source {one.source.count} records, hash {one.source.total:032x};"
                f" consumer {one.consumer.count} records, hash {one.consumer.total:032x}"
            )
    different = [f"{topic}-{one.partition}" for one in found if not one.is_equal]
    if different:
        click.echo(
            f"tidemark: the source differs from a consumer in {', '.join(different)}", err=True
        )
    return DIFFERENT if different else EQUAL
