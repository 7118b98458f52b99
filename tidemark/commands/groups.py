"""`tidemark groups`: list and describe groups, set their offsets again, delete them."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from kafka_client.blocking import ClusterError
from kafka_protocol.types import TopicPartition
from runtime.clock import SystemClock
from tidemark.cluster.asking import RefusedError
from tidemark.cluster.groups import ACTIVE, Groups, active_group
from tidemark.cluster.groups_text import group_json, group_text, groups_text, rows_of
from tidemark.cluster.resetting import (
    Current,
    Earliest,
    Facts,
    Latest,
    Planned,
    Shift,
    Since,
    To,
    Way,
    parse_topic,
    planned,
)
from tidemark.cluster.table import table
from tidemark.quorum.client_settings import client_settings
from tidemark.records.places import parse_duration_ms, parse_time_ms
from tidemark.remote.options import (
    WrongOptionError,
    cluster_options,
    confirm,
    json_option,
    named,
    print_json,
    report_each,
    terminal_width,
    yes_option,
)

_PLAN: Final = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "LOG-END-OFFSET")


@click.group("groups")
def command() -> None:
    """List and describe consumer groups, set their offsets again, delete them."""


@contextmanager
def _asking(bootstrap: str, command_config: Path | None) -> Iterator[Groups]:
    settings = client_settings(command_config)
    with settings.client(bootstrap) as client:
        yield Groups(client, settings.api_timeout_ms / 1000)


@command.command("list")
@json_option
@cluster_options
def list_command(*, as_json: bool, bootstrap: str, command_config: Path | None) -> None:
    """Show all groups with their states."""
    with _asking(bootstrap, command_config) as groups:
        found = groups.all()
    if as_json:
        print_json({"groups": [one._asdict() for one in found]})
    else:
        click.echo(groups_text(found, terminal_width()), nl=False)


@command.command("describe")
@named("GROUP", "--group", "-G")
@click.option("--all-groups", is_flag=True, help="All that there are.")
@json_option
@cluster_options
def describe_command(
    *,
    names: Sequence[str],
    all_groups: bool,
    as_json: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Show how far groups have read, and their members.

    LAG: offsets between what the group has committed and the end of the log; "-": not known, for
    nothing is committed, or the partition has no leader.
    """
    if all_groups == bool(names):
        raise WrongOptionError("name groups, or --all-groups")
    found = []
    with _asking(bootstrap, command_config) as groups:
        for name in names or [one.group for one in groups.all()]:
            group = groups.describe(name)
            committed = groups.offsets(name)
            assigned = [one for member in group.members for one in member.assigned or ()]
            found.append((group, rows_of(group, committed, groups.ends({*committed, *assigned}))))
    if as_json:
        print_json({"groups": [group_json(group, rows) for group, rows in found]})
    else:
        texts = [group_text(group, rows, terminal_width()) for group, rows in found]
        click.echo("\n".join(texts), nl=False)


def _parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A callback of an option whose text `parse` reads."""

    def callback(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


@command.command("reset")
@named("GROUP", "--group", "-G")
@click.option(
    "--topic", "-t", "topics", multiple=True, metavar="TOPIC[:0,1]",
    help="All partitions of a topic, or these; repeatable.",
)  # fmt: skip
@click.option("--all-topics", is_flag=True, help="All partitions that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="To the start of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-current", is_flag=True, help="To what is committed, else to the end.")
@click.option("--to-offset", type=int, metavar="N", help="To an offset, within the log.")
@click.option("--shift-by", type=int, metavar="N", help="N offsets on; below 0: back.")
@click.option(
    "--to-datetime", metavar="TIME", callback=_parsed(parse_time_ms),
    help="To the first record since then: 2026-01-31T12:00:00Z; UTC where no zone is given.",
)  # fmt: skip
@click.option(
    "--by-duration", metavar="DURATION", callback=_parsed(parse_duration_ms),
    help="To the first record of this last while: 2h, P7D.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the plan only, as without --execute.")
@click.option("--execute", is_flag=True, help="Set the offsets.")
@json_option
@cluster_options
def reset_command(
    *,
    names: Sequence[str],
    topics: Sequence[str],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    as_json: bool,
    bootstrap: str,
    command_config: Path | None,
    **ways: Any,
) -> None:
    """Set the offsets of GROUP again; shows what it would do, and does it with --execute.

    A group with members is refused: stop them first.
    """
    if len(names) != 1:
        raise WrongOptionError("name one group")
    if all_topics == bool(topics):
        raise WrongOptionError("name topics, or --all-topics")
    if dry_run and execute:
        raise WrongOptionError("--dry-run and --execute exclude each other")
    given = {way: value for way, value in ways.items() if value is not None and value is not False}
    if len(given) != 1:
        shown = ", ".join(f"--{one.replace('_', '-')}" for one in sorted(given or ways))
        raise WrongOptionError(f"say where to: one of {shown}")
    (group,) = names
    with _asking(bootstrap, command_config) as groups:
        plan = _plan(groups, group, topics, given)
        if not as_json:  # before anything is done: the old offsets are in it
            rows = [(*one.partition, *one[1:]) for one in plan]
            click.echo(table(_PLAN, rows, terminal_width()), nl=False)
        wanted = {one.partition: one.new for one in plan}
        refused = groups.commit(group, wanted) if execute else {}
    for error in refused.values():
        click.echo(f"tidemark: {error}", err=True)
    if as_json:
        offsets = [_fields(one, refused.get(one.partition)) for one in plan]
        print_json({"group": group, "executed": execute, "offsets": offsets})
    elif execute:
        click.echo(f"{len(plan) - len(refused)} offset(s) of group {group} were set.")
    else:
        click.echo("Nothing was changed; --execute sets the offsets.")
    sys.exit(1 if refused else 0)


def _plan(
    groups: Groups, group: str, topics: Sequence[str], given: dict[str, Any]
) -> list[Planned]:
    """The offsets that --execute would set."""
    try:
        chosen = [parse_topic(one) for one in topics]
    except ValueError as error:
        raise WrongOptionError(str(error)) from None
    partitions: set[TopicPartition] = set()
    for topic, numbers in chosen:
        there = groups.partitions_of(topic)
        wanted = there if numbers is None else [TopicPartition(topic, one) for one in numbers]
        if unknown := sorted(set(wanted) - set(there)):
            raise ClusterError(
                f"there is no {unknown[0]}: topic {topic} has {len(there)} partitions"
            )
        partitions.update(wanted)
    committed = groups.offsets(group)
    states = {one.group: one.state for one in groups.all()}
    if group not in states and not topics:
        groups.describe(group)  # says that there is none
    if states.get(group) in ACTIVE:
        raise active_group(group, states[group])
    partitions = partitions or set(committed)
    facts = Facts(committed, groups.starts(partitions), groups.ends(partitions))
    return planned(_way(groups, partitions, given), partitions, facts)


def _way(groups: Groups, partitions: set[TopicPartition], given: dict[str, Any]) -> Way:
    ((name, value),) = given.items()
    if name in ("to_datetime", "by_duration"):
        time_ms = value if name == "to_datetime" else max(0, SystemClock().wall_ms() - value)
        return Since(groups.first_since(partitions, time_ms))
    ways: dict[str, Callable[[], Way]] = {
        "to_earliest": Earliest,
        "to_latest": Latest,
        "to_current": Current,
        "to_offset": lambda: To(value),
        "shift_by": lambda: Shift(value),
    }
    return ways[name]()


def _fields(one: Planned, error: str | None) -> dict[str, object]:
    fields = {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "current_offset": one.current,
        "new_offset": one.new,
        "log_end_offset": one.end,
    }
    return fields if error is None else fields | {"error": error}


@command.command("delete")
@named("GROUP", "--group", "-G")
@yes_option
@json_option
@cluster_options
def delete_command(
    *,
    names: Sequence[str],
    yes: bool,
    as_json: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Forget groups without members, with their offsets.

    Asks on a terminal; elsewhere --yes is needed. Exit code 1: one was not deleted.
    """
    if not names:
        raise WrongOptionError("name a group")
    with _asking(bootstrap, command_config) as groups:
        for name in names:
            groups.describe(name)  # a wrong name is no question
        confirm(f"Delete {', '.join(names)} with all offsets?", yes=yes)
        report_each("groups", _deleted(groups, names), as_json=as_json)


def _deleted(groups: Groups, names: Iterable[str]) -> Iterator[tuple[dict[str, object], str]]:
    for name in names:
        fields: dict[str, object] = {"group": name}
        try:
            groups.delete(name)
        except RefusedError as error:
            fields["error"] = str(error)
        yield fields, f"Deleted group {name}."
