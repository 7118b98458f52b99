"""`tidemark metadata-quorum`: who leads the controllers, how far each is, and who votes."""

from dataclasses import dataclass
from pathlib import Path

import click

from kafka_client.blocking import BlockingClient
from runtime.clock import SystemClock
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.quorum.asking import Limits, QuorumAsker
from tidemark.quorum.client_settings import ClientSettings, client_settings
from tidemark.quorum.text import replication_json, replication_text, status_json, status_text
from tidemark.quorum.voters import added_text, adding, key_of, removed_text, removing, voter_of
from tidemark.remote.options import (
    WrongOptionError,
    bootstrap_beside,
    bootstrap_option,
    command_config_option,
    json_option,
    print_json,
)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The options of the group, for its commands."""

    server: str | None
    controller: str | None
    command_config: Path | None

    def address(self) -> str:
        """The one address to ask.

        Raises:
            WrongOptionError: both were given.
        """
        if self.server is not None and self.controller is not None:
            raise WrongOptionError(
                "--bootstrap-server and --bootstrap-controller exclude each other; keep the one "
                "that fits the listener"
            )
        given = self.server if self.controller is None else self.controller
        assert given is not None  # there is a default for the first
        return given


@click.group("metadata-quorum")
@bootstrap_option
@click.option(
    "--bootstrap-controller", metavar="HOST:PORT",
    help="A controller; several with commas between.",
)  # fmt: skip
@command_config_option
@click.pass_context
def command(
    ctx: click.Context,
    bootstrap: str,
    bootstrap_controller: str | None,
    command_config: Path | None,
) -> None:
    """Describe and change the quorum of the controllers, as Kafka's kafka-metadata-quorum.sh."""
    ctx.obj = Bootstrap(
        bootstrap_beside(bootstrap_controller), bootstrap_controller, command_config
    )


@command.command("describe")
@click.option("--status", is_flag=True, help="The leader, and the lag of the slowest voter.")
@click.option("--replication", is_flag=True, help="Log end and lag of each replica, a line each.")
@click.option("--human-readable", is_flag=True, help="Times as ms ago; with --replication.")
@json_option
@click.pass_obj
def describe_command(
    bootstrap: Bootstrap, *, status: bool, replication: bool, human_readable: bool, as_json: bool
) -> None:
    """Describe the quorum: --status or --replication."""
    _check(status=status, replication=replication, human_readable=human_readable)
    address = bootstrap.address()
    settings = client_settings(bootstrap.command_config)
    if settings.without_effect:
        click.echo(f"tidemark: no effect here: {', '.join(settings.without_effect)}", err=True)
    clock = SystemClock()
    with settings.client(address) as client:
        found = _asker(client, settings, bootstrap).describe()
    if as_json:
        print_json(status_json(found) if status else replication_json(found))
        return
    if status:
        text = status_text(found)
    else:
        text = replication_text(found, clock.wall_ms() if human_readable else None)
    click.echo(text, nl=False)


def _asker(client: BlockingClient, settings: ClientSettings, bootstrap: Bootstrap) -> QuorumAsker:
    limits = Limits(settings.api_timeout_ms, settings.request_timeout_ms)
    of_controllers = bootstrap.controller is not None
    return QuorumAsker(client, limits, SystemClock(), of_controllers=of_controllers)


@command.command("add-controller")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.pass_obj
def add_command(bootstrap: Bootstrap, *, dry_run: bool) -> None:
    """Let a controller vote that runs and has all of the metadata log.

    Its server.properties, in --command-config, say its node.id, its listeners and its metadata
    directory, which has to be on this machine. It was formatted with --no-initial-controllers.
    """
    path = bootstrap.command_config
    if path is None:
        raise WrongOptionError(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller."
        )
    address, settings = bootstrap.address(), client_settings(path)
    voter = voter_of(load(path, (), list_without_effect=False), path, Disk())
    if not dry_run:
        with settings.client(address) as client:
            _asker(client, settings, bootstrap).change(adding(voter))
    click.echo(added_text(voter, dry_run=dry_run))


@command.command("remove-controller")
@click.option(
    "--controller-id", "-i", type=int, required=True, metavar="ID", help="Of the voter to remove."
)
@click.option(
    "--controller-directory-id", "-d", required=True, metavar="DIRECTORY",
    help="Its directory id, as `describe --replication` shows it.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.pass_obj
def remove_command(
    bootstrap: Bootstrap, *, controller_id: int, controller_directory_id: str, dry_run: bool
) -> None:
    """Let a controller vote no more; it may be lost. Until it is stopped it observes."""
    key = key_of(controller_id, controller_directory_id)
    address, settings = bootstrap.address(), client_settings(bootstrap.command_config)
    if not dry_run:
        with settings.client(address) as client:
            _asker(client, settings, bootstrap).change(removing(key))
    click.echo(removed_text(key, dry_run=dry_run))


def _check(*, status: bool, replication: bool, human_readable: bool) -> None:
    """Refuse what Kafka's tool refuses, in its words."""
    if status and replication:
        raise WrongOptionError(
            "Only one of --status or --replication should be specified with describe sub-command"
        )
    if not status and not replication:
        raise WrongOptionError(
            "One of --status or --replication must be specified with describe sub-command"
        )
    if status and human_readable:
        raise WrongOptionError(
            "The option --human-readable is only supported along with --replication"
        )
