"""`tidemark start`: run a node until it is told to stop."""

import sys
from pathlib import Path

import click

from runtime.child_process import die_with_parent
from tidemark.node_files.loading import load, log_to_stdout


@click.command("start")
@click.option(
    "--config", "-c", "config_file", required=True, metavar="FILE", type=click.Path(path_type=Path),
    help="The node's server.properties.",
)  # fmt: skip
@click.option("--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable.")
@click.option("--parent-pid", type=int, hidden=True, help="End with this process.")
def command(config_file: Path, override: tuple[str, ...], parent_pid: int | None) -> None:
    """Run a node with a server.properties."""
    if parent_pid is not None:
        die_with_parent(parent_pid)
    log_to_stdout()
    config = load(config_file, override, starts=True)
    from broker.app import run  # a wrong configuration fails before this loads
    from broker.testing import extension_of

    sys.exit(run(config, extend=extension_of(config)))
