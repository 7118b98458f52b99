"""`tidemark remote restore-partition`: the remedy where only the store has records."""

from pathlib import Path

import click

from tidemark.cluster.asking import Cluster
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import cluster_options, confirm, yes_option
from tidemark.remote.restoring import above, ask, check_nobody_returns, find, restore

_STORE_S = 150.0
"""The leader reads two objects from the store, perhaps with retries."""


@click.command("restore-partition")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--lost", multiple=True, type=click.IntRange(min=0), metavar="BROKER",
    help="A broker whose replica does not come back, or does not count; repeatable.",
)  # fmt: skip
@click.option(
    "--log-end", metavar="OFFSET", type=click.IntRange(min=1),
    help="Where new records begin; default: above all that is proved to have been given.",
)  # fmt: skip
@yes_option
@cluster_options
def command(
    *,
    topic: str,
    partition: int,
    lost: tuple[int, ...],
    log_end: int | None,
    yes: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Begin a tiered partition again whose local copies are all lost, while its broker runs.

    Its log begins above all offsets that were given, with the epoch chain and the producers of the
    newest remote segment; what was copied is read from the store. Refused while a replica may come
    back with records that were not copied. Exit code 1: it was refused, and nothing was changed.
    """
    settings = client_settings(command_config)
    with settings.client(bootstrap) as client:
        client.timeout_s = _STORE_S
        cluster = Cluster(client)
        wanted = find(cluster, topic, partition)
        leader = check_nobody_returns(cluster, wanted, lost)
        found = above(ask(client, leader, wanted), log_end)
        for line in found.lines(wanted):
            click.echo(line)
        confirm("Begin there?", yes=yes)
        restore(client, leader, wanted, found)
    click.echo(f"restored: {wanted} continues at offset {found.end}; health is green in a moment")
