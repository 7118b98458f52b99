"""`tidemark produce`: lines of standard input or of a file as records of a topic."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from runtime.override import override
from tidemark.node_files.loading import parse_overrides
from tidemark.records.lines import LineError, LineForm, parse_header
from tidemark.records.options import SeparatorType, property_option, topic_of, topic_options
from tidemark.records.producing import (
    FAILURES_MAX,
    Asked,
    Outcome,
    lines_of,
    open_producer,
    produce,
)
from tidemark.remote.options import (
    WrongOptionError,
    cluster_options,
    json_option,
)

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_INTERRUPTED: Final = 130


class _HeaderType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """`NAME=VALUE`."""

    name = "header"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, bytes | None]:
        try:
            return parse_header(str(value))
        except LineError as error:
            self.fail(str(error))


@click.command("produce")
@topic_options
@click.option(
    "-l", "--file", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Read lines of this file in place of standard input.",
)  # fmt: skip
@click.option(
    "-K", "--key-separator", "separator", type=SeparatorType(), metavar="TEXT",
    help="Each line is a key, then this, then the value; \\t is a tab.",
)  # fmt: skip
@click.option("-k", "--key", metavar="TEXT", help="The key of all records.")
@click.option(
    "-H", "--header", "headers", type=_HeaderType(), multiple=True, metavar="NAME=VALUE",
    help="A header of all records; repeatable.",
)  # fmt: skip
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), metavar="N",
    help="The partition of all records. Default: by key, as Java's clients.",
)  # fmt: skip
@click.option(
    "-z", "--compression-codec", "--compression", "compression", type=click.Choice(_CODECS),
    help="Default: compression.type of --command-config, or none.",
)  # fmt: skip
@click.option(
    "--acks", "--request-required-acks", "acks", type=click.Choice(("0", "1", "all", "-1")),
    help="How many replicas must have a record. Default: acks of --command-config, or all.",
)  # fmt: skip
@click.option("--null-marker", metavar="TEXT", help="A key or a value that is this text is null.")
@json_option
@cluster_options
@property_option
def command(
    topic_argument: str | None, topic_option: str | None, bootstrap: str, **given: Any
) -> None:
    """Write each line of standard input, or of --file, to TOPIC as a record.

    Prints how many were acknowledged, and which were not. Exit code 1: some were not.
    """
    from tidemark.records.client import given_settings

    topic = topic_of(topic_argument, topic_option)
    if given["key"] is not None and given["separator"] is not None:
        raise WrongOptionError("--key and --key-separator do not go together")
    if given["file"] is None and sys.stdin is None:  # started with `<&-`
        raise WrongOptionError("standard input is closed: give --file FILE")
    form = LineForm(given["separator"], _bytes(given["key"]), _bytes(given["null_marker"]))
    asked = Asked(topic, form, given["partition"], given["headers"])
    settings = parse_overrides(given["properties"], option="--command-property")
    config: Path | None = given["command_config"]
    translated = given_settings(config, settings)
    if translated.without_effect:
        _say(f"no effect here: {', '.join(translated.without_effect)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # flushes, as Ctrl-C does
    client = open_producer(bootstrap, translated, given["acks"], given["compression"])
    with _opened(given["file"]) as lines:
        outcome = produce(client, asked, lines, _say)
    acks = given["acks"] or translated.settings.get("acks")
    _report(topic, outcome, acks, as_json=given["as_json"])
    sys.exit(_INTERRUPTED if outcome.is_interrupted else 0 if outcome.is_good else 1)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


@contextmanager
def _opened(file: Path | None) -> Iterator[Iterator[bytes | None]]:
    if file is not None:
        with file.open("rb") as opened:
            yield lines_of(opened.fileno())
        return
    if sys.stdin.isatty():
        _say("each line becomes a record; Ctrl-D ends")
    yield lines_of(sys.stdin.fileno())


def _report(topic: str, outcome: Outcome, acks: str | None, *, as_json: bool) -> None:
    if as_json:
        failures = [{"line": line, "error": why} for line, why in outcome.failures]
        found = {
            "topic": topic,
            "acknowledged": outcome.acknowledged,
            "failed": outcome.failed,
            "failures": failures,
            "unread": outcome.unread,
        }
        click.echo(json.dumps(found))
    else:
        done = "sent, and no answer was asked for" if acks == "0" else "acknowledged"
        click.echo(f"{topic}: {_records(outcome.acknowledged)} {done}")
        if outcome.failed:
            more = f"; the first {FAILURES_MAX} are named" * (outcome.failed > FAILURES_MAX)
            _say(f"{_records(outcome.failed)} failed{more}")
        if outcome.unread:
            _say(f"{outcome.unread}; no line from there on was sent")


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _say(text: str) -> None:
    click.echo(f"tidemark: {text}", err=True)
