"""`tidemark metadata-quorum describe`: the quorum as its leader sees it."""

import click

from kafka_client.blocking import BlockingClient
from runtime.clock import SystemClock
from tidemark.quorum.asking import Limits, QuorumAsker
from tidemark.quorum.client_settings import client_settings
from tidemark.quorum.options import Bootstrap
from tidemark.quorum.text import replication_text, status_text
from tidemark.remote.options import ToolCommand, WrongOptionError


@click.command("describe", cls=ToolCommand)
@click.option("--status", is_flag=True, help="Who leads, how far behind the slowest voter is.")
@click.option("--replication", is_flag=True, help="How far each replica is, a line each.")
@click.option("--human-readable", is_flag=True, help="Times as ms ago; with --replication.")
@click.pass_obj
def command(bootstrap: Bootstrap, *, status: bool, replication: bool, human_readable: bool) -> None:
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
