"""`tidemark topics replicate`: give topics that exist more replicas."""

import sys
import time
from pathlib import Path
from typing import Final

import click

from kafka_client.blocking import ClusterError
from kafka_protocol.errors import ErrorCode
from tidemark.cluster.asking import Cluster, Reassigning, Refusal
from tidemark.cluster.replication import progress, raised_factor
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import WrongOptionError, cluster_options

_PAUSE_S: Final = 0.5
_Going = dict[tuple[str, int], Reassigning]


@click.command("replicate")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All topics, those of the brokers too.")
@click.option(
    "--factor", type=click.IntRange(min=1), required=True, metavar="N",
    help="How many replicas each partition shall have; one that has more keeps them.",
)  # fmt: skip
@click.option("--no-wait", is_flag=True, help="Return when it has begun.")
@cluster_options
def command(
    topics: tuple[str, ...],
    *,
    is_all: bool,
    factor: int,
    no_wait: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Raise the number of replicas of topics, and wait until the new ones are in sync.

    They go to brokers of other racks first, then to those with the fewest replicas. Topics are read
    and written meanwhile. The command may be ended at any time, and given again: what has begun
    continues, and nothing is done twice. Exit code 1: a topic was refused.
    """
    if is_all == bool(topics):
        raise WrongOptionError("name topics, or --all")
    settings = client_settings(command_config)
    with settings.client(bootstrap) as client:
        cluster = Cluster(client)
        chosen, refused = begin(cluster, topics, factor)
        try:
            if chosen and not no_wait:
                wait(cluster, chosen)
        except KeyboardInterrupt:
            click.echo("interrupted: copying continues; the same command shows how far it is")
            sys.exit(130)
    # Of all topics those that cannot have replicas yet are no failure.
    codes = {one.code for one in refused.values()}
    if is_all:
        codes.discard(ErrorCode.INVALID_REPLICATION_FACTOR)
    sys.exit(1 if codes else 0)


def begin(
    cluster: Cluster, topics: tuple[str, ...], factor: int
) -> tuple[set[str], dict[str, Refusal]]:
    """Ask for what is missing; returns the topics that have it then, and why others have not."""
    brokers, going = cluster.brokers(), cluster.reassigning()
    everything = list(cluster.partitions())
    exist = {one.topic for one in everything}
    if unknown := sorted(set(topics) - exist):
        raise ClusterError(f"there is no topic {', '.join(unknown)}; nothing was changed")
    chosen = set(topics) or exist
    plan = raised_factor(everything, brokers, factor, chosen, going)
    refusals = cluster.reassign(plan.wanted)
    refused = {one.topic: one for one in reversed(refusals)}
    for topic, count in sorted(plan.topics.items()):
        if topic in refused:
            click.echo(f"{topic}: refused: {refused[topic].text}", err=True)
        else:
            click.echo(f"{topic}: {count} partition(s) get {factor} replicas")
    if plan.enough:
        click.echo(f"{len(plan.enough)} topic(s) have {factor} replicas or more already")
    return chosen - refused.keys(), refused


def wait(cluster: Cluster, topics: set[str]) -> None:
    """Return when nothing is added to these topics any more; a silent cluster is waited for."""
    shown = ""
    while True:
        try:
            brokers, ongoing = cluster.brokers(), _ongoing(cluster, topics)
            text = progress(ongoing, brokers) if ongoing else "all replicas are in sync"
        except ClusterError as error:
            ongoing, text = {("", 0): Reassigning()}, f"its progress is unknown: {error}"
        if text != shown:
            click.echo(text)
        if not ongoing:
            return
        shown = text
        time.sleep(_PAUSE_S)


def _ongoing(cluster: Cluster, topics: set[str]) -> _Going:
    return {place: one for place, one in cluster.reassigning().items() if place[0] in topics}
