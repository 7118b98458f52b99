"""`tidemark consume`: records of a topic to stdout, as any consumer gets them from the brokers."""

import select
import signal
import sys
from pathlib import Path
from typing import Any

import click

from tidemark.node_files.loading import parse_overrides
from tidemark.records.consuming import Asked, Reading, open_consumer
from tidemark.records.formats import HEX, JSON, KINDS, RAW, Consumed, Form, line_maker
from tidemark.records.options import (
    PlaceType,
    SeparatorType,
    count_option,
    partitions_option,
    property_option,
    topic_of,
    topic_options,
)
from tidemark.records.places import Place, Word
from tidemark.records.waiting import code_of_leader
from tidemark.remote.options import WrongOptionError, cluster_options, json_option


@click.command("consume")
@topic_options
@click.option(
    "-o", "--from", "--offset", "place", type=PlaceType(), metavar="PLACE",
    help="First: earliest (default), latest, end-10 or -10 (the last ten of each partition), an"
    " offset, a time (2026-01-31T12:00:00Z; UTC where no zone is given), -2h (two hours ago).",
)  # fmt: skip
@click.option("--from-beginning", is_flag=True, help="As --from earliest.")
@count_option
@click.option("--follow", is_flag=True, help="Wait for new records, until Ctrl-C.")
@click.option(
    "-e", "--exit", "is_ending", is_flag=True,
    help="End where each log ends when the command begins: the default.",
)  # fmt: skip
@click.option(
    "--timeout-ms", type=click.IntRange(min=1), metavar="MS",
    help="End when no record came for so long.",
)  # fmt: skip
@partitions_option
@click.option(
    "-G", "--group", metavar="GROUP",
    help="Join this group: begin where it has committed, and commit what was printed.",
)  # fmt: skip
@click.option(
    "--output", type=click.Choice(KINDS),
    help="raw (default): the value as it is; hex: its bytes in hexadecimal; json: one object a"
    " line with topic, partition, offset, timestamp, key, value, headers.",
)  # fmt: skip
@json_option
@click.option(
    "--value", type=click.Choice(("text", "json")), default="text", show_default=True,
    help="json: values are JSON, and part of the object that is printed (--output json); one that"
    " does not parse is null and stands in value_raw.",
)  # fmt: skip
@click.option(
    "-K", "--key-separator", "separator", type=SeparatorType(), metavar="TEXT",
    help="With raw and hex: print the key, then this, then the value.",
)  # fmt: skip
@click.option(
    "--isolation-level", "--isolation", "isolation",
    type=click.Choice(("read_uncommitted", "read_committed")),
    help="Default: isolation.level of --command-config, or read_uncommitted.",
)  # fmt: skip
@cluster_options
@property_option
def command(
    topic_argument: str | None, topic_option: str | None, bootstrap: str, **given: Any
) -> None:
    """Print records of TOPIC, as the brokers give them to any consumer.

    Ends where the log ends, with exit code 0; also where the reader of a pipe has enough. Nothing
    is committed without --group. `tidemark cat` reads the store itself, without the brokers.
    """
    from tidemark.records.client import given_settings

    if sys.stdout is None:  # started with `>&-`
        raise WrongOptionError("stdout is closed: there is nowhere to print to")
    form = _form(given)
    settings = parse_overrides(given["properties"], option="--command-property")
    if given["isolation"]:
        settings["isolation.level"] = given["isolation"]
    config: Path | None = given["command_config"]
    translated = given_settings(config, settings)
    if translated.without_effect:
        _say(f"no effect here: {', '.join(translated.without_effect)}")
    group = given["group"] or translated.settings.get("group.id")
    asked = _asked(topic_of(topic_argument, topic_option), group, given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # closes the client, as Ctrl-C does
    out = _Out(form)
    try:
        reading = Reading(
            open_consumer(bootstrap, translated, asked),
            asked,
            out.write,
            out.is_heard,
            _say,
            code_of_leader(bootstrap, translated.settings),
        )
        if reading.run() == 0 and out.is_heard() and not asked.is_endless:
            _say(f"there is no record of {asked.topic} to print; --follow waits for new ones")
    except KeyboardInterrupt:
        if not asked.is_endless:
            raise


def _form(given: dict[str, Any]) -> Form:
    wants_json = given["as_json"] or given["value"] == "json"
    kind = given["output"] or (JSON if wants_json else RAW)
    if wants_json and kind != JSON:
        raise WrongOptionError(f"--output {kind} has no objects of JSON: leave out --json, --value")
    if given["separator"] is not None and kind == JSON:
        raise WrongOptionError(f"--key-separator is for --output {RAW} and {HEX}")
    return Form(kind, given["value"] == "json", given["separator"])


def _asked(topic: str, group: str | None, given: dict[str, Any]) -> Asked:
    place: Place | None = given["place"]
    if given["from_beginning"] and place not in (None, Word.EARLIEST):
        raise WrongOptionError("--from-beginning contradicts --from")
    if given["is_ending"] and given["follow"]:
        raise WrongOptionError("--exit contradicts --follow")
    if group and given["partitions"]:
        raise WrongOptionError("--partition and --group do not go together: the group gives some")
    if group and not isinstance(place, Word | None):
        raise WrongOptionError(
            "--group begins where it has committed; --from earliest or latest says where it has not"
        )
    timeout_ms: int | None = given["timeout_ms"]
    return Asked(
        topic,
        Word.EARLIEST if place is None else place,
        given["partitions"],
        given["count"],
        given["follow"],
        None if timeout_ms is None else timeout_ms / 1_000,
        group,
    )


class _Out:
    """Standard output: a file, a terminal, or a pipe whose reader may leave."""

    def __init__(self, form: Form) -> None:
        self._line_of = line_maker(form)
        self._poll = select.poll()
        self._poll.register(sys.stdout.fileno(), 0)  # errors alone

    def write(self, records: list[Consumed]) -> None:
        sys.stdout.buffer.write(b"".join(map(self._line_of, records)))
        sys.stdout.buffer.flush()

    def is_heard(self) -> bool:
        """False where the reader of the pipe has left, so that nothing is waited for."""
        return not any(event & select.POLLERR for _, event in self._poll.poll(0))


def _say(text: str) -> None:
    click.echo(f"tidemark: {text}", err=True)
