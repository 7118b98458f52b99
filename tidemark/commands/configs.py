"""`tidemark configs`: show, set and unset settings of topics and brokers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from kafka_client.blocking import ClusterError
from metadata_topic.controller.configs import Operation
from metadata_topic.image.image import ResourceType
from tidemark.cluster.asking import Change, Cluster, Setting
from tidemark.cluster.topics import own_settings, settings_text, source_of, topics_named
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import (
    WrongOptionError,
    cluster_options,
    json_option,
    print_json,
    terminal_width,
)

F = TypeVar("F", bound=Callable[..., Any])


@click.group("configs")
def command() -> None:
    """Show, set and unset settings of a topic, of a broker, or of all brokers."""


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource that has the settings.

    Attributes:
        name: the topic, or the broker's id; "": what all brokers share.
    """

    cluster: Cluster
    kind: ResourceType
    name: str

    def __str__(self) -> str:
        """The resource's name in the texts of Kafka's tool."""
        if self.kind == ResourceType.TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"

    def fields(self) -> dict[str, str]:
        """The same for programs; the name of all brokers is "", as in the protocol."""
        return {"type": self.kind.name.lower(), "name": self.name}

    def settings(self, keys: Sequence[str]) -> list[Setting]:
        """Those of these names, or all where there are none."""
        at = None
        if self.kind == ResourceType.BROKER and self.name:
            brokers = self.cluster.brokers()
            if int(self.name) not in brokers:
                ids = ", ".join(map(str, brokers))
                raise ClusterError(f"there is no broker {self.name}; the cluster has {ids}")
            at = brokers[int(self.name)].address
        found = self.cluster.all_settings(self.kind, [self.name], keys or None, at)
        return sorted(found.get(self.name, []), key=lambda one: one.name)


def _resource_options(function: F) -> F:
    """`--topic`, `--broker` and `--broker-defaults`, of which one has to be given."""
    for option in (
        click.option("--broker-defaults", is_flag=True, help="What all brokers share."),
        click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="A broker."),
        click.option("--topic", "-t", metavar="TOPIC", help="A topic."),
    ):
        function = option(function)
    return function


@contextmanager
def _resource(given: dict[str, Any]) -> Iterator[Resource]:
    """The one that the options name, of a cluster that is asked meanwhile."""
    topic, broker, shared = given["topic"], given["broker"], given["broker_defaults"]
    if (topic is not None) + (broker is not None) + shared != 1:
        raise WrongOptionError("name one of --topic, --broker and --broker-defaults")
    config: Path | None = given["command_config"]
    with client_settings(config).client(given["bootstrap"]) as client:
        cluster = Cluster(client)
        if topic is not None:
            topics_named(cluster, [topic])  # a wrong name gets the nearest one
            yield Resource(cluster, ResourceType.TOPIC, topic)
        else:
            yield Resource(cluster, ResourceType.BROKER, "" if broker is None else str(broker))


@command.command("show")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@_resource_options
@click.option("--all", "is_all", is_flag=True, help="Also those that have their defaults.")
@json_option
@cluster_options
def show_command(*, keys: Sequence[str], is_all: bool, as_json: bool, **given: Any) -> None:
    """Show the settings that were set, those of the names KEY, or all."""
    if keys and is_all:
        raise WrongOptionError("--all goes without KEY")
    with _resource(given) as resource:
        found = resource.settings(keys)
    if keys:
        names = {one.name for one in found}
        if unknown := [one for one in keys if one not in names]:
            raise ClusterError(f"{resource} has no setting {', '.join(unknown)}")
    elif not is_all:
        found = own_settings(resource.kind, resource.name, found)
    if as_json:
        configs = [
            {"name": one.name, "value": one.value, "source": source_of(one)} for one in found
        ]
        print_json({"resource": resource.fields(), "configs": configs})
    elif found:
        click.echo(settings_text(found, terminal_width()), nl=False)
    else:
        click.echo(f"nothing was set for {resource}; --all shows all settings")


@command.command("set")
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@_resource_options
@json_option
@cluster_options
def set_command(*, pairs: Sequence[str], as_json: bool, **given: Any) -> None:
    """Set settings: all that are given, or none."""
    from tidemark.node_files.loading import parse_overrides  # loads every key of a broker

    settings = parse_overrides(pairs, option="KEY=VALUE")
    with _resource(given) as resource:
        changes = [Change(key, Operation.SET, value) for key, value in settings.items()]
        resource.cluster.alter_configs(resource.kind, resource.name, changes)
    if as_json:
        print_json({"resource": resource.fields(), "set": settings})
        return
    for key, value in settings.items():
        click.echo(f"{resource}: {key}={value}")


@command.command("unset")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@_resource_options
@json_option
@cluster_options
def unset_command(*, keys: Sequence[str], as_json: bool, **given: Any) -> None:
    """Take settings back, all that are given, or none: the defaults hold again."""
    with _resource(given) as resource:
        own = {
            one.name for one in own_settings(resource.kind, resource.name, resource.settings(()))
        }
        if unknown := [one for one in keys if one not in own]:
            raise ClusterError(f"{', '.join(unknown)} was not set for {resource}; nothing changed")
        changes = [Change(key, Operation.DELETE) for key in dict.fromkeys(keys)]
        resource.cluster.alter_configs(resource.kind, resource.name, changes)
    if as_json:
        print_json({"resource": resource.fields(), "unset": list(dict.fromkeys(keys))})
        return
    for key in dict.fromkeys(keys):
        click.echo(f"{resource}: {key} is no longer set")
