"""What holds for all commands: one address, one file of properties, JSON, how they end."""

import ssl
from asyncio import to_thread
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.kafka_client.node import serving
from tests.support.samples.command_line import tidemark
from tests.unit.kafka_client.test_client_security import PEM
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
    "command",
    [
        ("topics", "list"), ("configs", "show", "-t", "x"), ("groups", "list"), ("status",),
        ("metadata-quorum", "describe", "--status"), ("brokers", "safe-to-stop", "1"),
        ("features", "describe"), ("remote", "segments", "x"), ("cat", "x"),
    ],
)  # fmt: skip
async def test_the_file_of_kafkas_tools_makes_a_connection_of_tls(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is not trusted, so that nothing more need be served."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this is not the main thread
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
