"""`tidemark remote replicate-metadata`: copies of what is known of the store, on several disks."""

import sys
from pathlib import Path

import click

from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from tidemark.cluster.asking import Cluster
from tidemark.commands.topics_replicate import begin, wait
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import cluster_options


@click.command("replicate-metadata")
@click.option(
    "--factor", type=click.IntRange(min=2), default=3, show_default=True, metavar="N",
    help="How many replicas each partition shall have; one that has more keeps them.",
)  # fmt: skip
@cluster_options
def command(*, factor: int, bootstrap: str, command_config: Path | None) -> None:
    """Raise the number of replicas of __remote_log_metadata, and min.insync.replicas to 2.

    With one replica a lost disk takes all that is known of the store, and all tiers wait while its
    broker is away. Replicas go to brokers with a remote tier, which all have this version: older
    ones do not have on disk what they say they have. Tiers work meanwhile. The command may be
    ended at any time, and given again. Exit code 1: it was refused.
    """
    settings = client_settings(command_config)
    with settings.client(bootstrap) as client:
        cluster = Cluster(client)
        # Now: a partition needs no more members than it has replicas that have joined.
        if cluster.min_isr([REMOTE_LOG_METADATA_TOPIC]).get(REMOTE_LOG_METADATA_TOPIC, 2) < 2:
            cluster.set_min_isr(REMOTE_LOG_METADATA_TOPIC, 2)
        chosen, refused = begin(cluster, (REMOTE_LOG_METADATA_TOPIC,), factor)
        if refused:
            sys.exit(1)
        try:
            wait(cluster, chosen)
        except KeyboardInterrupt:
            click.echo("interrupted: copying continues; give the command again")
            sys.exit(130)
    click.echo("each record is on the disks of two brokers before anything is done by it")
