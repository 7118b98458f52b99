"""Options of all `tidemark pipeline` commands: place of the log, Spark, progress lines."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import click

from runtime.override import override
from tidemark.node_files.loading import parse_overrides
from tidemark.remote.options import WrongOptionError, bootstrap_option, command_config_option

F = TypeVar("F", bound=Callable[..., Any])


def spark_options(function: F) -> F:
    """`--master` and `--conf`, as spark-submit has them."""
    master = click.option(
        "--master", metavar="URL",
        help="Spark's master: local[4], spark://host:7077, yarn. Default: Spark's own setting.",
    )  # fmt: skip
    conf = click.option(
        "--conf", "conf", multiple=True, metavar="K=V", help="A setting of Spark; repeatable."
    )
    return master(conf(function))


def log_options(function: F) -> F:
    """Where the topic is: brokers, their client's properties, the store."""
    decorators = [
        bootstrap_option,
        click.option(
            "--bucket", metavar="URL",
            help="The store: s3://bucket/prefix, hdfs://host:port/dir, a directory. Without"
            " --bootstrap-server: what it holds; with it, only needed where the broker's settings"
            " do not fit here.",
        ),
        click.option(
            "--storage-config", "storage", multiple=True, metavar="K=V",
            help="A setting of the storage plugin (rsm.config.K); repeatable.",
        ),
        command_config_option,
        click.option(
            "--isolation", type=click.Choice(("read_uncommitted", "read_committed")),
            help="Default: isolation.level of --command-config, or read_uncommitted.",
        ),
    ]  # fmt: skip
    for one in reversed(decorators):
        function = one(function)
    return function


class _LogStartType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """`PARTITION=OFFSET`."""

    name = "log start"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        found = re.fullmatch(r"(\d{1,10})=(\d{1,19})", str(value), re.ASCII)
        if found is None:
            self.fail(f"{value!r}: allowed is PARTITION=OFFSET, for example 0=1500")
        return int(found[1]), int(found[2])


def log_start_option(function: F) -> F:
    """`--log-start`, given to the command as `log_starts`."""
    return click.option(
        "--log-start", "log_starts", type=_LogStartType(), multiple=True,
        metavar="PARTITION=OFFSET", help="Of a bucket without a broker: no offset below is read, so"
        " that deleted records stay deleted; repeatable.",
    )(function)  # fmt: skip


def log_starts_of(given: Iterable[tuple[int, int]]) -> dict[int, int]:
    """By partition.

    Raises:
        WrongOptionError: one is given twice.
    """
    found: dict[int, int] = {}
    for number, offset in given:
        if number in found:
            raise WrongOptionError(f"--log-start is given twice for partition {number}")
        found[number] = offset
    return found


def spark_session(
    name: str, master: str | None, conf: Iterable[str]
) -> AbstractContextManager[Any]:
    """A SparkSession, which starts when the block is entered and is stopped at its end.

    Raises:
        ConfigError: a setting is no `K=V`; at once.
        MissingPackageError: pyspark or a Java is missing; when it starts.
    """
    from pipeline.jobs import session  # with --help nothing of Spark is looked for

    return session.spark_session(name, master, parse_overrides(conf, option="--conf"))


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """One line on stderr: written over at a terminal, else a new line where it changes."""
    is_terminal = sys.stderr.isatty()
    last = ""

    def say(line: str) -> None:
        nonlocal last
        if line != last:
            last = line
            click.echo(f"\r\x1b[K{line}" if is_terminal else line, err=True, nl=not is_terminal)

    try:
        yield say
    finally:
        if is_terminal and last:
            click.echo("", err=True)
