"""`tidemark metadata-quorum`: who leads the controllers, and how far each of them is."""

from dataclasses import dataclass
from pathlib import Path

import click

from kafka_client.blocking import BlockingClient
from runtime.clock import SystemClock
from tidemark.quorum.asking import Limits, QuorumAsker
from tidemark.quorum.client_settings import client_settings
from tidemark.quorum.text import replication_text, status_text
from tidemark.remote.options import ToolCommand, WrongOptionError


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The options of the group, for its commands."""

    server: str | None
    controller: str | None
    command_config: Path | None

    def address(self) -> str:
        """The one address that was given.

        Raises:
            WrongOptionError: none was, or both.
        """
        if self.server is not None and self.controller is not None:
            raise WrongOptionError(
                "--bootstrap-server and --bootstrap-controller exclude each other; keep the one "
                "that fits the listener"
            )
        given = self.server if self.controller is None else self.controller
        if given is None:
            raise WrongOptionError("--bootstrap-server or --bootstrap-controller is required")
        return given


@click.group("metadata-quorum")
@click.option(
    "--bootstrap-server", metavar="HOST:PORT",
    help="A broker, which asks its controllers; several with commas between.",
)  # fmt: skip
@click.option(
    "--bootstrap-controller", metavar="HOST:PORT",
    help="A controller; several with commas between.",
)  # fmt: skip
@click.option(
    "--command-config", metavar="FILE", type=click.Path(path_type=Path),
    help="Properties of the Kafka client: client.id, default.api.timeout.ms (10 s if not given), "
    "request.timeout.ms. Plaintext only.",
)  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: Path | None,
) -> None:
    """Describe the quorum of the controllers, as Kafka's kafka-metadata-quorum.sh does."""
    ctx.obj = Bootstrap(bootstrap_server, bootstrap_controller, command_config)


@command.command("describe", cls=ToolCommand)
@click.option("--status", is_flag=True, help="Who leads, how far behind the slowest voter is.")
@click.option("--replication", is_flag=True, help="How far each replica is, a line each.")
@click.option("--human-readable", is_flag=True, help="Times as ms ago; with --replication.")
@click.pass_obj
def describe_command(
    bootstrap: Bootstrap, *, status: bool, replication: bool, human_readable: bool
) -> None:
    """Describe the quorum: --status or --replication."""
    _check(status=status, replication=replication, human_readable=human_readable)
    address = bootstrap.address()
    settings = client_settings(bootstrap.command_config)
    if settings.without_effect:
        click.echo(f"tidemark: no effect here: {', '.join(settings.without_effect)}", err=True)
    clock = SystemClock()
    with BlockingClient(address, settings.client_id) as client:
        limits = Limits(settings.api_timeout_ms, settings.request_timeout_ms)
        of_controllers = bootstrap.controller is not None
        found = QuorumAsker(client, limits, clock, of_controllers=of_controllers).describe()
    if status:
        text = status_text(found)
    else:
        text = replication_text(found, clock.wall_ms() if human_readable else None)
    click.echo(text, nl=False)


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
