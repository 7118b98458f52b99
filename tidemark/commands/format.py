"""`tidemark format`: give a node's log directories their identity."""

from pathlib import Path

import click

from broker.node.cluster_secret import draw_cluster_secret
from runtime.disk import Disk
from runtime.rng import SystemRng
from tidemark.node_files.formatting import format_node
from tidemark.node_files.loading import load


@click.command("format")
@click.option(
    "--config", "-c", "config_file", required=True, metavar="FILE", type=click.Path(path_type=Path),
    help="The node's server.properties.",
)  # fmt: skip
@click.option(
    "--cluster-id",
    "-t",
    metavar="ID",
    help="The same on all nodes; random if omitted on a controller.",
)
@click.option(
    "--standalone", "-s", is_flag=True, help="Make this controller the first voter of its quorum."
)
@click.option(
    "--initial-controllers", "-I", metavar="ID@HOST:PORT:DIRECTORY,...",
    help="The voters of a new quorum of several; the same on all of them.",
)  # fmt: skip
@click.option(
    "--no-initial-controllers", "-N", is_flag=True,
    help="This controller joins a quorum that exists, without a vote at first.",
)  # fmt: skip
@click.option(
    "--ignore-formatted", "-g", is_flag=True, help="Leave formatted directories as they are."
)
@click.option(
    "--cluster-secret", is_flag=True,
    help="Draw the file of tidemark.cluster.secret.file, if it is not there; once for a cluster, to"
    " be copied to its other nodes.",
)  # fmt: skip
@click.option("--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable.")
def command(
    config_file: Path,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    cluster_secret: bool,
    override: tuple[str, ...],
) -> None:
    """Prepare the log directories of a node."""
    config = load(config_file, override)
    if cluster_secret and not config.tidemark_cluster_secret_file:
        raise click.UsageError("--cluster-secret needs tidemark.cluster.secret.file in the config")
    done = format_node(
        config,
        cluster_id=cluster_id,
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
        ignore_formatted=ignore_formatted,
    )
    for path in done.skipped:
        click.echo(f"{path} was formatted before, cluster.id={done.cluster_id}")
    for path in done.directories:
        click.echo(f"formatted {path}, cluster.id={done.cluster_id}")
    if cluster_secret:
        _draw_secret(Path(config.tidemark_cluster_secret_file))


def _draw_secret(path: Path) -> None:
    if draw_cluster_secret(path, Disk(), SystemRng()):
        click.echo(f"drew the cluster's secret in {path}: copy it to the other nodes, unread")
    else:
        click.echo(f"{path} is there and is left as it is")
