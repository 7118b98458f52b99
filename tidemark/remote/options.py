"""Arguments and options that commands share, and the exit code for wrong ones: 2, as click's."""

import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource

from runtime.override import override

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
"""Where `tidemark dev` listens."""
BOOTSTRAP_VARIABLE: Final = "TIDEMARK_BOOTSTRAP_SERVER"
NAMES_A_BROKER: Final = f"--bootstrap-server or {BOOTSTRAP_VARIABLE} names a broker"
"""The remedy where no process listens."""

Command = TypeVar("Command", bound=Callable[..., Any])  # Any: click gives what the options say

F = TypeVar("F", bound=Callable[..., Any])


class WrongOptionError(click.UsageError):
    """Options that do not go together, or one that is lacking."""


class _ToolError(click.UsageError):
    exit_code = 1


class ToolCommand(click.Command):
    """A command whose wrong options end with 1, for 2 means something else here."""

    @override
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _ending_with_1():
            return super().make_context(*args, **kwargs)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        with _ending_with_1():
            return super().invoke(ctx)


@contextmanager
def _ending_with_1() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        raise _ToolError(error.format_message(), error.ctx) from error


def bootstrap_option(function: F) -> F:
    """`--bootstrap-server`, given to the command as `bootstrap`; the variable, or the default."""
    return click.option(
        "--bootstrap-server", "-b", "bootstrap", default=DEFAULT_BOOTSTRAP,
        envvar=BOOTSTRAP_VARIABLE, show_default=True, show_envvar=True, metavar="HOST:PORT",
        help="A broker of the cluster; several with commas between.",
    )(function)  # fmt: skip


def command_config_option(function: F) -> F:
    """`--command-config`: properties of the client, as Kafka's tools have them."""
    return click.option(
        "--command-config", "-F", metavar="FILE", type=click.Path(path_type=Path),
        help="Properties of the client, as for Kafka's tools: security.protocol, ssl.*, sasl.*,"
        " client.id, default.api.timeout.ms (10 s if not given).",
    )(function)  # fmt: skip


def cluster_options(function: F) -> F:
    """`--bootstrap-server` and `--command-config`, as Kafka's tools have them.

    An address without a listener ends the command with what names another.
    """

    @functools.wraps(function)
    def asking(*args: Any, **given: Any) -> Any:
        from kafka_client.blocking import UnreachableError

        try:
            return function(*args, **given)
        except UnreachableError as error:
            if not isinstance(error.__cause__, ConnectionRefusedError):
                raise
            raise UnreachableError(f"{error}; {NAMES_A_BROKER}") from error

    return bootstrap_option(command_config_option(cast("F", asking)))


def bootstrap_beside(other: str | None) -> str | None:
    """The brokers' address for a command that can do without: it has a store, or controllers.

    Args:
        other: that other place, as the user gave it. Where there is one, only the option itself
            names brokers: the variable and the default mean those who named no place at all.
    """
    ctx = click.get_current_context()
    is_named = ctx.get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE
    return ctx.params["bootstrap"] if other is None or is_named else None


def json_option(function: F) -> F:
    """`--json`, given to the command as `as_json`."""
    return click.option("--json", "-J", "as_json", is_flag=True, help="Print JSON.")(function)


def print_json(value: object) -> None:
    """Print what `--json` asks for."""
    click.echo(json.dumps(value, indent=1))


def report_each(
    what: str, done: Iterable[tuple[dict[str, object], str]], *, as_json: bool
) -> NoReturn:
    """Say what became of each of several things, as it comes, and end with 1 where one failed.

    Args:
        what: the name of the list for programs.
        done: fields for programs and a sentence for people; with `error` among the fields it
            failed. It may raise: what was done before is said all the same.
        as_json: print the list at the end, in place of sentences.

    Raises:
        ClusterError: before anything was done.
    """
    from kafka_client.blocking import ClusterError

    shown: list[dict[str, object]] = []
    try:
        for fields, text in done:
            shown.append(fields)
            if "error" in fields:
                click.echo(f"tidemark: {fields['error']}", err=True)
            elif not as_json:
                click.echo(text)
    except ClusterError as error:
        if not shown:
            raise
        shown.append({"error": str(error)})
        click.echo(f"tidemark: {error}", err=True)
    if as_json:
        print_json({what: shown})
    sys.exit(1 if any("error" in one for one in shown) else 0)


def yes_option(function: F) -> F:
    """`--yes`, for commands that destroy; see `confirm`."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


def confirm(question: str, *, yes: bool) -> None:
    """Return when the user agrees.

    Args:
        question: what is asked on a terminal.
        yes: `--yes` was given; nothing is asked.

    Raises:
        WrongOptionError: no question can be asked: standard input is no terminal.
        click.Abort: the user says no.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise WrongOptionError("standard input is no terminal: give --yes to confirm")
    click.confirm(question, abort=True, err=True)


def named(what: str, *options: str) -> Callable[[F], F]:
    """Names as arguments, or by an option as Kafka's tools have it; given as `names`, each once.

    Args:
        what: a name, in capitals, for the help.
        options: the option, with its letter.
    """

    def decorate(function: F) -> F:
        @click.argument("arguments", metavar=f"[{what}]...", nargs=-1)
        @click.option(
            *options, "options", multiple=True, metavar=what, help="The same; repeatable."
        )
        @functools.wraps(function)
        def merged(
            *args: Any, arguments: Sequence[str], options: Sequence[str], **given: Any
        ) -> Any:
            return function(*args, names=tuple(dict.fromkeys((*arguments, *options))), **given)

        return cast("F", merged)

    return decorate


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None: it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def config_options(command: Command) -> Command:
    """Add --config and --override."""
    command = click.option(
        "--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable."
    )(command)
    return click.option(
        "--config",
        "-c",
        "config_file",
        required=True,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The node's server.properties.",
    )(command)


def partition_options(command: Command) -> Command:
    """Add TOPIC, PARTITION, --config and --override."""
    command = click.argument("partition", type=click.IntRange(min=0))(config_options(command))
    return click.argument("topic")(command)
