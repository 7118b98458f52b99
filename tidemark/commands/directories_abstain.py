"""`tidemark directories abstain`: let a controller start that lost its quorum-state."""

from pathlib import Path

import click

from runtime.dice import SystemDice
from runtime.disk import Disk
from tidemark.node_files.loading import load
from tidemark.node_files.lost_vote import abstain
from tidemark.node_files.offline_options import config_options


@click.command("abstain")
@click.option(
    "--epoch", type=int, required=True, metavar="N",
    help="The highest epoch that any other controller of the quorum knows.",
)  # fmt: skip
@config_options
def command(epoch: int, config_file: Path, override: tuple[str, ...]) -> None:
    """Let a controller that lost its quorum-state start, without a vote up to epoch N.

    N is the highest epoch of all other controllers, those that are stopped included: the metric
    current-epoch of a running one, leaderEpoch in the file quorum-state of a stopped one. This
    controller must be stopped.
    """
    config = load(config_file, override, list_without_effect=False)
    abstain(config, epoch, Disk(), SystemDice())
    click.echo(f"node {config.node_id} gives no vote up to epoch {epoch}; it can be started")
