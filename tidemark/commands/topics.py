"""`tidemark topics`: list, describe, create, alter and delete topics; give them more replicas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from kafka_client.blocking import ClusterError
from kafka_protocol.errors import ErrorCode
from metadata_topic.image.image import ResourceType
from tidemark.cluster.asking import Cluster, NewTopic, RefusedError
from tidemark.cluster.topics import (
    own_settings,
    replication_factor,
    topic_json,
    topic_text,
    topics_named,
)
from tidemark.commands import topics_replicate
from tidemark.quorum.client_settings import client_settings
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


@click.group("topics")
def command() -> None:
    """List, describe, create, alter and delete topics; give them more replicas."""


command.add_command(topics_replicate.command)


@command.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave the topics of the brokers out.")
@json_option
@cluster_options
def list_command(
    *, exclude_internal: bool, as_json: bool, bootstrap: str, command_config: Path | None
) -> None:
    """Print the names of all topics, a line each."""
    with client_settings(command_config).client(bootstrap) as client:
        found = Cluster(client).topics()
    shown = [found[name] for name in sorted(found)]
    shown = [one for one in shown if not (exclude_internal and one.is_internal)]
    if as_json:
        topics = [
            {
                "topic": one.name,
                "is_internal": one.is_internal,
                "partition_count": len(one.partitions),
                "replication_factor": replication_factor(one),
            }
            for one in shown
        ]
        print_json({"topics": topics})
        return
    for one in shown:
        click.echo(one.name)


@command.command("describe")
@named("TOPIC", "--topic", "-t")
@click.option("--exclude-internal", is_flag=True, help="Leave the topics of the brokers out.")
@json_option
@cluster_options
def describe_command(
    *,
    names: Sequence[str],
    exclude_internal: bool,
    as_json: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Show topics, or all: their settings, and who leads and has each partition.

    Isr: replicas in sync. Elr: those that are not, and may lead all the same, since they have all
    that is committed (KIP-966).
    """
    with client_settings(command_config).client(bootstrap) as client:
        cluster = Cluster(client)
        found = topics_named(cluster, names)
        chosen = [
            one
            for one in found.values()
            if one.name in names or not (exclude_internal and one.is_internal)
        ]
        settings = _settings(cluster, [one.name for one in chosen])
    chosen.sort(key=lambda one: one.name)
    if as_json:
        topics = [topic_json(one, settings.get(one.name, {})) for one in chosen]
        print_json({"topics": topics})
        return
    texts = [topic_text(one, settings.get(one.name, {}), terminal_width()) for one in chosen]
    click.echo("\n".join(texts), nl=False)


@command.command("create")
@named("TOPIC", "--topic", "-t")
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), metavar="N",
    help="How many; default: num.partitions of the cluster.",
)  # fmt: skip
@click.option(
    "--replication-factor", type=click.IntRange(min=1), metavar="N",
    help="Replicas of each; default: default.replication.factor of the cluster.",
)  # fmt: skip
@click.option(
    "--config", "-X", "config", multiple=True, metavar="K=V",
    help="A setting, such as remote.storage.enable=true; repeatable.",
)  # fmt: skip
@click.option(
    "--if-not-exists", is_flag=True, help="One that exists is left alone, and is no error."
)
@json_option
@cluster_options
def create_command(
    *,
    as_json: bool,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    config: Sequence[str],
    if_not_exists: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Make topics."""
    if not names:
        raise WrongOptionError("name a topic")
    from tidemark.node_files.loading import parse_overrides  # loads every key of a broker

    settings = parse_overrides(config, option="--config")
    with client_settings(command_config).client(bootstrap) as client:
        news = [
            NewTopic(one, partitions or -1, replication_factor or -1, settings) for one in names
        ]
        done = _created(Cluster(client), news, may_exist=if_not_exists)
        report_each("topics", done, as_json=as_json)


def _created(
    cluster: Cluster, news: Iterable[NewTopic], *, may_exist: bool
) -> Iterator[tuple[dict[str, object], str]]:
    for new in news:
        fields: dict[str, object] = {"topic": new.name}
        text = f"topic {new.name} exists and was left alone"
        try:
            count, factor = cluster.create_topic(new)
        except RefusedError as error:
            if not may_exist or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                fields["error"] = str(error)
        else:
            fields |= {"partition_count": count, "replication_factor": factor}
            text = f"Created topic {new.name}. PartitionCount: {count}  ReplicationFactor: {factor}"
        yield fields, text


@command.command("alter")
@named("TOPIC", "--topic", "-t")
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), required=True, metavar="N",
    help="How many it shall have: more than now.",
)  # fmt: skip
@json_option
@cluster_options
def alter_command(
    *,
    as_json: bool,
    names: Sequence[str],
    partitions: int,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Give topics more partitions.

    Records stay where they are; a key may belong to another partition from then on.
    """
    if not names:
        raise WrongOptionError("name a topic")
    with client_settings(command_config).client(bootstrap) as client:
        cluster = Cluster(client)
        topics_named(cluster, names)  # a wrong name changes nothing
        report_each("topics", _grown(cluster, names, partitions), as_json=as_json)


def _grown(
    cluster: Cluster, names: Iterable[str], count: int
) -> Iterator[tuple[dict[str, object], str]]:
    for name in names:
        fields: dict[str, object] = {"topic": name}
        try:
            cluster.create_partitions(name, count)
        except RefusedError as error:
            fields["error"] = str(error)
        else:
            fields["partition_count"] = count
        yield fields, f"Altered topic {name}. PartitionCount: {count}"


@command.command("delete")
@named("TOPIC", "--topic", "-t")
@click.option("--if-exists", is_flag=True, help="One that does not exist is no error.")
@yes_option
@json_option
@cluster_options
def delete_command(
    *,
    as_json: bool,
    names: Sequence[str],
    if_exists: bool,
    yes: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Delete topics with all of their records, in the remote tier, too.

    Asks on a terminal; elsewhere --yes is needed. Exit code 1: one was not deleted.
    """
    if not names:
        raise WrongOptionError("name a topic")
    with client_settings(command_config).client(bootstrap) as client:
        cluster = Cluster(client)
        wanted = list(names)
        if if_exists:
            known = cluster.topics()
            wanted = [one for one in names if one in known]
        else:
            known = topics_named(cluster, names)
        if internal := [one for one in wanted if known[one].is_internal]:
            raise ClusterError(
                f"{_some(internal)}: the brokers keep their own state there; nothing was deleted"
            )
        count = sum(len(known[one].partitions) for one in wanted)
        text = f"Delete {_some(wanted)} with all records of {count} partition(s)?"
        if wanted:
            confirm(text, yes=yes)
        refused = cluster.delete_topics({known[one].topic_id: one for one in wanted})
    report_each("topics", _deleted(wanted, refused), as_json=as_json)


def _deleted(
    names: Iterable[str], refused: Mapping[str, RefusedError]
) -> Iterator[tuple[dict[str, object], str]]:
    for name in names:
        fields: dict[str, object] = {"topic": name}
        if name in refused:
            fields["error"] = str(refused[name])
        yield fields, f"Deleted topic {name}."


def _settings(cluster: Cluster, names: Sequence[str]) -> Mapping[str, dict[str, str]]:
    """The settings of the topics themselves."""
    kind = ResourceType.TOPIC
    return {
        name: {one.name: one.value or "" for one in own_settings(kind, name, found)}
        for name, found in cluster.all_settings(kind, names).items()
    }


def _some(names: Iterable[str]) -> str:
    return ", ".join(names)
