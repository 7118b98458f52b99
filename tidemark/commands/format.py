"""`tidemark format`: give a node's log directories their identity."""

from pathlib import Path

import click

from tidemark.node_files.formatting import format_node
from tidemark.node_files.loading import load


@click.command("format")
@click.option(
    "--config", "-c", "config_file", required=True, metavar="FILE", type=click.Path(path_type=Path),
    help="The node's server.properties.",
)  # fmt: skip
@click.option("--cluster-id", "-t", metavar="ID", help="The same on all nodes; random if left out.")
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
@click.option("--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable.")
def command(
    config_file: Path,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    override: tuple[str, ...],
) -> None:
    """Prepare the log directories of a node."""
    config = load(config_file, override)
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
