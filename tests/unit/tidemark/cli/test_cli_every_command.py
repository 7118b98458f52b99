"""What holds for all commands: one address, one file of properties, JSON, how they end."""

import json
import ssl
import sys
from asyncio import to_thread
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.kafka_client.node import serving
from tests.support.samples.command_line import tidemark
from tests.unit.kafka_client.test_client_security import PEM
from tidemark import __version__
from tidemark.cli import cli


def all_commands(
    group: click.Group = cli, name: tuple[str, ...] = (), above: tuple[click.Parameter, ...] = ()
) -> Iterator[tuple[str, dict[str, click.Parameter]]]:
    """Each command with its options, those of its groups too."""
    ctx = click.Context(group)
    for one in group.list_commands(ctx):
        found = group.get_command(ctx, one)
        assert found is not None
        params = (*above, *found.params)
        if isinstance(found, click.Group):
            yield from all_commands(found, (*name, one), params)
        else:
            yield " ".join((*name, one)), {opt: p for p in params for opt in p.opts}


COMMANDS = dict(all_commands())
ASKING = sorted(name for name, options in COMMANDS.items() if "--bootstrap-server" in options)


def test_each_command_that_asks_a_cluster_takes_the_properties_of_a_client() -> None:
    assert len(ASKING) > 30
    lacking = [one for one in ASKING if not {"-b", "-F"} <= COMMANDS[one].keys()]
    assert lacking == []
    helps = {getattr(COMMANDS[one]["--command-config"], "help", None) for one in ASKING}
    assert len(helps) == 1, "there is one option for all"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("topics --list", "type tidemark topics list"),
        ("topic --create --topic x", "type tidemark topics create"),
        ("topics --bootstrap-server h:1 --list", "type tidemark topics list -b HOST:PORT"),
        ("consumer-groups --list", "type tidemark groups list"),
        ("groups describe --all", "type tidemark groups describe --all-groups"),
        ("group --reset-offsets", "type tidemark groups reset"),
        ("configs describe --topic x", "type tidemark configs show"),
        ("config alter", "type tidemark configs set, or unset"),
        ("-L", "type tidemark topics describe"),
        ("consume x --property print.key=true", "type -K : for keys"),
        ("produce x --property parse.key=true", "type -K : where lines begin with a key"),
    ],
)
def test_habits_of_other_tools_get_the_command_to_type(typed: str, says: str) -> None:
    done = tidemark(*typed.split())
    assert done.exit_code != 0
    assert says in done.stderr
    assert "Did you mean" not in done.stderr


@pytest.mark.parametrize(("one", "all_of_them"), [("topic", "topics"), ("group", "groups")])
def test_a_group_of_commands_may_be_called_in_the_singular(one: str, all_of_them: str) -> None:
    listed = tidemark(one, "list", "-b", "127.0.0.1:1")
    assert (listed.exit_code, listed.stderr) == (
        1,
        tidemark(all_of_them, "list", "-b", "127.0.0.1:1").stderr,
    )


def test_of_two_ways_to_reset_both_are_named() -> None:
    done = tidemark("groups", "reset", "g", "-t", "x", "--to-latest", "--to-earliest")
    assert done.exit_code == 2
    assert done.stderr.endswith("Error: say where to: one of --to-earliest, --to-latest\n")


WITHOUT_JSON = {
    "cat", "pipeline export", "pipeline verify",  # formats of their own, and progress
    "dev", "start", "format", "init", "split", "rsm new",  # of files and processes
    "brokers add", "brokers drain", "directories drain", "topics replicate",  # they wait and tell
    "directories abstain", "directories accept", "directories forget", "log accept",
    "metadata-quorum add-controller", "metadata-quorum remove-controller", "remote adopt",
    "remote claim", "remote forget", "remote replicate-metadata", "remote restore-partition",
}  # fmt: skip
"""They change one thing, and say so in a sentence."""


def test_whatever_lists_or_describes_is_there_for_programs() -> None:
    without = {one for one, options in COMMANDS.items() if "--json" not in options}
    assert without == WITHOUT_JSON
    assert json.loads(tidemark("version", "--json").stdout) == {"version": __version__}


def test_a_reader_that_has_enough_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def show() -> None:
        raise BrokenPipeError

    replaced: list[int] = []
    monkeypatch.setattr(cli, "get_command", lambda *_: click.Command("version", callback=show))
    monkeypatch.setattr("os.dup2", lambda _, descriptor: replaced.append(descriptor))
    assert tidemark("version").exit_code == 0
    assert replaced == [1], "else the end of the process flushes into the pipe"


@pytest.mark.parametrize(
    ("thrown", "code"), [(BrokenPipeError, 0), (KeyboardInterrupt, 130), (ValueError, 1)]
)
def test_how_a_table_whose_reader_left_ends_and_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, thrown: type[BaseException], code: int
) -> None:
    def show() -> None:
        try:
            raise thrown
        except BrokenPipeError:
            sys.exit(1)  # as rich does

    monkeypatch.setattr(cli, "get_command", lambda *_: click.Command("version", callback=show))
    assert tidemark("version").exit_code == code


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"), ("configs", "show", "-t", "x"), ("groups", "list"), ("status",),
        ("metadata-quorum", "describe", "--status"), ("brokers", "safe-to-stop", "1"),
        ("features", "describe"), ("remote", "segments", "x")
    ],
)  # fmt: skip
async def test_the_file_of_kafkas_tools_makes_a_connection_of_tls(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """The certificate is not trusted, so that nothing more need be served."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(PEM)
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\ndefault.api.timeout.ms=300\n")
    if command[0] == "metadata-quorum":
        command = (command[0], "-F", str(file), *command[1:])
        where = 1
    else:
        command, where = (*command, "-F", str(file)), len(command)
    async with serving(lambda *_: None, {ApiKey.METADATA: (12, 12)}, tls=server) as node:
        address = ("-b", f"127.0.0.1:{node.port}")
        done = await to_thread(tidemark, *command[:where], *address, *command[where:])
    assert done.exit_code in (1, 2), done.output
    assert "certificate" in done.output, done.output
