"""`tidemark status`: is a cluster well, node by node."""

import json
import sys
from pathlib import Path

import click

from runtime.clock import SystemClock
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import ToolCommand, bootstrap_beside, bootstrap_option, json_option
from tidemark.status.asking import StatusAsker
from tidemark.status.report import GREEN, judge


@click.command("status", cls=ToolCommand)
@bootstrap_option
@click.option(
    "--bootstrap-controller", metavar="HOST:PORT",
    help="A controller; several with commas between. They are asked themselves then, also where no"
    " broker runs; brokers only where --bootstrap-server is given, too.",
)  # fmt: skip
@click.option(
    "--command-config", metavar="FILE", type=click.Path(path_type=Path),
    help="Properties of the Kafka client: client.id, default.api.timeout.ms (10 s if not given: in "
    "all), request.timeout.ms. Plaintext only.",
)  # fmt: skip
@json_option
def command(
    bootstrap: str,
    bootstrap_controller: str | None,
    command_config: Path | None,
    *,
    as_json: bool,
) -> None:
    """Show all nodes of a cluster; exit code 0 where all is green, else 1 with the reasons."""
    settings = client_settings(command_config)
    if settings.without_effect:
        click.echo(f"tidemark: no effect here: {', '.join(settings.without_effect)}", err=True)
    servers = bootstrap_beside(bootstrap_controller)
    asker = StatusAsker(servers, bootstrap_controller, settings, SystemClock())
    report = judge(asker.ask())
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=1))
    else:
        click.echo(report.text(), nl=False)
    sys.exit(0 if report.status == GREEN else 1)
