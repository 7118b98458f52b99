"""The `tidemark` command: a node (start, format, dev), its tools, and the data in its topics.

Commands are imported when they are called, so that `tidemark --help` and a start are quick. What a
user did wrong ends in one message on stderr and exit code 1, or 2 where the command line itself is
wrong; nothing has been written then. Where
the reader of a pipe has enough the exit code is 0, on Ctrl-C 130, unless a command ends otherwise.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import click

from runtime.override import override
from tidemark.platforms import why_no_command

_INTERRUPTED: Final = 130
_STDOUT: Final = 1
_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "brokers": "Say whether a broker can be stopped now: safe-to-stop.",
        "cat": "Print or save a topic's records, from the remote tier and the brokers.",
        "configs": "Show, set and unset settings of topics and brokers.",
        "consume": "Print records of a topic, as the brokers give them.",
        "dev": "Run one broker with a local remote tier, ready in a second, nothing to set up.",
        "directories": "Look at a node's log directories; give a lost one up.",
        "features": "Show and raise the levels of features: describe, upgrade.",
        "format": "Prepare the log directories of a node.",
        "groups": "List and describe consumer groups, set their offsets again, delete them.",
        "init": "Write a server.properties to begin with, with comments.",
        "log": "Look at the files of one partition: inspect, accept.",
        "metadata-quorum": "Describe the quorum of the controllers: leader, and the lag of all.",
        "pipeline": "Run jobs on Spark that read topics from the remote tier: export, verify.",
        "produce": "Write lines to a topic as records.",
        "remote": "Look at the remote tier of a cluster: segments, audit; claim, forget.",
        "rsm": "For authors and operators of storage plugins: check, new.",
        "split": "Make a lone combined node a broker beside controllers of their own.",
        "start": "Run a node with a server.properties.",
        "status": "Show nodes and topics of a cluster, and whether it is well.",
        "topics": "List, describe, create, alter and delete topics; give them more replicas.",
        "version": "Print the version.",
    }
)
_SINGULARS: Final[Mapping[str, str]] = {"topic": "topics", "group": "groups", "config": "configs"}
_COMMAND_FIRST: Final = "HOST:PORT, the command before its options"
_HABITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tidemark -L": "tidemark topics describe",
        "tidemark consumer-groups": "tidemark groups list",
        "tidemark topics --list": "tidemark topics list",
        "tidemark topics --describe": "tidemark topics describe",
        "tidemark topics --create": "tidemark topics create",
        "tidemark topics --delete": "tidemark topics delete",
        "tidemark topics --alter": "tidemark topics alter",
        "tidemark topics --bootstrap-server": f"tidemark topics list -b {_COMMAND_FIRST}",
        "tidemark groups --list": "tidemark groups list",
        "tidemark groups --describe": "tidemark groups describe",
        "tidemark groups --delete": "tidemark groups delete",
        "tidemark groups --reset-offsets": "tidemark groups reset",
        "tidemark groups --bootstrap-server": f"tidemark groups list -b {_COMMAND_FIRST}",
        "tidemark groups describe --all": "tidemark groups describe --all-groups",
        "tidemark configs describe": "tidemark configs show",
        "tidemark configs alter": "tidemark configs set, or unset",
        "tidemark configs --describe": "tidemark configs show",
        "tidemark configs --alter": "tidemark configs set, or unset",
        "tidemark configs --bootstrap-server": f"tidemark configs show -b {_COMMAND_FIRST}",
        "tidemark consume --property": "-K : for keys, --json for all of a record",
        "tidemark consume --formatter-property": "-K : for keys, --json for all of a record",
        "tidemark produce --property": "-K : where lines begin with a key",
        "tidemark produce --reader-property": "-K : where lines begin with a key",
    }
)
"""Commands to type for words of Kafka's tools and of kcat that no command here has."""
_NOT_THERE: Final = re.compile(r"No such (?:option|command):? '?([\w-]+)'?")


class LazyGroup(click.Group):
    """Knows its commands by name; a command is the `command` of a module of its own."""

    def __init__(self, *args: Any, module: str, names: Mapping[str, str], **kwargs: Any) -> None:
        """Take the list of commands.

        Args:
            args: as click's.
            module: where a command lives, `{}` for its name with underscores.
            names: one line of help for each command.
            kwargs: as click's.
        """
        super().__init__(*args, **kwargs)
        self._module, self._names = module, names

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._names)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._names:
            return None
        if why := why_no_command(cmd_name):
            raise click.ClickException(why)
        module = self._module.format(cmd_name.replace("-", "_"))
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    @override
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _pointed():
            return super().make_context(*args, **kwargs)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`topic`, `group` and `config` are known, too."""
        return super().resolve_command(ctx, [_SINGULARS.get(args[0], args[0]), *args[1:]])

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _pointed():
                return super().invoke(ctx)
        except BrokenPipeError:
            # nothing may be flushed at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
            sys.exit(0)
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):  # as rich ends it
                sys.exit(0)
            raise
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._names.items()))


@contextmanager
def _pointed() -> Iterator[None]:
    """Add what to type to the error of a word that other tools have."""
    try:
        yield
    except click.UsageError as error:
        found = _NOT_THERE.match(error.message)
        path = "" if error.ctx is None else error.ctx.command_path
        if found and (habit := _HABITS.get(f"{path} {found[1]}")):
            raise click.UsageError(f"{found[0]}: type {habit}", error.ctx) from error
        raise


@contextmanager
def explained() -> Iterator[None]:
    """End the process with one message on stderr when an expected error comes out of the block."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except Exception as error:
        if not _is_expected(error):
            raise
        click.echo(f"tidemark: {error}", err=True)
        sys.exit(1)


def _is_expected(error: Exception) -> bool:
    """Say whether the message alone helps the user; any other error is our bug: show its stack."""
    # imported here: a start that goes well does not need all of them
    from kafka_client.blocking import ClusterError

    if isinstance(error, ClusterError | OSError):
        return True  # the usual ones, of commands that need none of the others
    from broker.config.key import ConfigError
    from broker.node.directories import DirectoryError
    from metadata_topic.quorum.errors import UnusableMetadataError
    from metadata_topic.quorum.start.format import AlreadyFormattedError, NotFormattedError
    from pipeline.errors import PipelineError
    from rlm.maintenance.incarnation import OlderFormError
    from tidemark.node_files.forgetting import ForgetError
    from tidemark.node_files.formatting import FormatError
    from tidemark.node_files.log_directories import LogDirectoryError
    from tidemark.node_files.offline_topics import OfflineLogError
    from tidemark.node_files.split import SplitError
    from tidemark.quorum.description import QuorumError
    from tidemark.remote.storage import PluginError
    from tidemark.seed.records import SeedError

    expected = (ConfigError, DirectoryError, AlreadyFormattedError, NotFormattedError, FormatError)
    ours = (LogDirectoryError, OfflineLogError, PipelineError, PluginError)
    more = (ForgetError, SeedError, UnusableMetadataError, QuorumError, OlderFormError, SplitError)
    return isinstance(error, (*expected, *ours, *more))


def _print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        from tidemark import __version__  # looks for the package

        click.echo(f"tidemark {__version__}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    module="tidemark.commands.{}",
    names=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Print the version and end.",
)  # fmt: skip
def cli() -> None:
    """A Kafka-compatible broker with tiered storage."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    with explained():
        cli(prog_name="tidemark")


if __name__ == "__main__":
    main()
