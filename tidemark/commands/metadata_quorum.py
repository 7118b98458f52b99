"""`tidemark metadata-quorum`: who leads the controllers, and how far each of them is."""

from pathlib import Path
from types import MappingProxyType

import click

from tidemark.lazy_group import LazyGroup
from tidemark.quorum.options import Bootstrap

_COMMANDS = MappingProxyType({"describe": "Describe the quorum: --status or --replication."})


@click.command(
    "metadata-quorum",
    cls=LazyGroup,
    module="tidemark.commands.metadata_quorum_{}",
    names=_COMMANDS,
)
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
