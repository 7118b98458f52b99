"""Options that commands share: which address is asked, and who is asked before a deletion."""

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from kafka_client.blocking import ClusterError
from tests.support.brokers.process import ROOT
from tests.support.samples.command_line import tidemark
from tidemark.cli import cli
from tidemark.remote.options import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_BOOTSTRAP,
    NAMES_A_BROKER,
    WrongOptionError,
    bootstrap_beside,
    bootstrap_option,
    confirm,
    report_each,
)


@click.command()
@bootstrap_option
@click.option("--bucket")
def asked(bootstrap: str, bucket: str | None) -> None:
    """Print which brokers are meant."""
    click.echo(f"{bootstrap} {bootstrap_beside(bucket)}")


def which(*arguments: str, variable: str | None = None) -> list[str]:
    done = CliRunner(env={BOOTSTRAP_VARIABLE: variable}).invoke(asked, arguments)
    assert done.exit_code == 0, done.output
    return done.output.split()


def test_the_option_goes_before_the_variable_before_the_default() -> None:
    assert which() == [DEFAULT_BOOTSTRAP] * 2
    assert which(variable="") == [DEFAULT_BOOTSTRAP] * 2
    assert which(variable="v:1") == ["v:1"] * 2
    assert which("--bootstrap-server=o:1", variable="v:1") == ["o:1"] * 2
    assert which("-b", "o:1") == ["o:1"] * 2


def test_beside_another_place_only_the_option_names_brokers() -> None:
    assert which("--bucket=b", variable="v:1") == ["v:1", "None"]
    assert which("--bucket=b") == [DEFAULT_BOOTSTRAP, "None"]
    assert which("--bucket=b", "-b", "o:1") == ["o:1"] * 2


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        yield " ".join((*path, name)), one
        if isinstance(one, click.Group):
            yield from commands(one, (*path, name))


def test_all_commands_take_the_address_in_the_same_way() -> None:
    found = {
        name: option
        for name, command in commands(cli)
        for option in command.params
        if "--bootstrap-server" in option.opts
    }
    assert len(found) > 10
    for name, option in found.items():
        assert (option.default, option.envvar) == (DEFAULT_BOOTSTRAP, BOOTSTRAP_VARIABLE), name


def test_the_page_of_the_command_line_names_all_commands() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    names = {name for name, one in commands(cli) if not isinstance(one, click.Group)}
    assert {name for name in names if f"\n| `{name}` |" not in page} == set()


def test_a_shell_completes_commands_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        monkeypatch.setenv("_TIDEMARK_COMPLETE", "bash_complete")
        return CliRunner().invoke(cli, prog_name="tidemark").output.split()

    assert completed("tidemark top") == ["plain,topics"]
    assert completed("tidemark topics de") == ["plain,delete", "plain,describe"]
    assert completed("tidemark topics list --boot") == ["plain,--bootstrap-server"]


def test_an_address_that_nobody_named_stands_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "127.0.0.1:1")
    done = tidemark("features", "describe")
    said = f"tidemark: 127.0.0.1:1: Connection refused; {NAMES_A_BROKER}\n"
    assert (done.exit_code, done.stderr) == (1, said)


def each(*, as_json: bool, ends: bool = False) -> tuple[int | str | None, str, str]:
    """Of three things the second fails; or nobody answers before the third."""

    def done() -> Iterator[tuple[dict[str, object], str]]:
        yield {"topic": "a"}, "Made a."
        yield {"topic": "b", "error": "b: refused"}, "Made b."
        if ends:
            raise ClusterError("nobody answers")
        yield {"topic": "c"}, "Made c."

    @click.command()
    def command() -> None:
        report_each("topics", done(), as_json=as_json)

    found = CliRunner().invoke(command)
    return found.exit_code, found.stdout, found.stderr


def test_each_of_several_results_is_shown_and_a_failure_sets_the_exit_code() -> None:
    assert each(as_json=False) == (1, "Made a.\nMade c.\n", "tidemark: b: refused\n")
    code, out, err = each(as_json=True)
    assert (code, err) == (1, "tidemark: b: refused\n")
    failed = {"topic": "b", "error": "b: refused"}
    assert json.loads(out) == {"topics": [{"topic": "a"}, failed, {"topic": "c"}]}
    _, out, err = each(as_json=True, ends=True)
    assert json.loads(out) == {"topics": [{"topic": "a"}, failed, {"error": "nobody answers"}]}
    assert err.endswith("tidemark: nobody answers\n")


def test_where_nothing_was_done_there_is_the_error_alone() -> None:
    def done() -> Iterator[tuple[dict[str, object], str]]:
        raise ClusterError("nobody answers")
        yield {}, ""

    with pytest.raises(ClusterError, match="nobody answers"):
        report_each("topics", done(), as_json=True)


def test_nobody_is_asked_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin in (None, NoTerminal()):
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(WrongOptionError, match="give --yes"):
            confirm("Delete it?", yes=False)
        confirm("Delete it?", yes=True)


class NoTerminal:
    def isatty(self) -> bool:
        return False
